"""CMRC 2018's scores against the output of the official script, and rule by rule."""

import json
import pathlib

import pytest

from bert_jax.scores import cmrc as cmrc_scores

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent / "goldens" / "squad_metrics.json").read_text(encoding="utf-8")
)["cmrc2018"]


def test_the_scores_are_the_official_scripts():
    questions = GOLDEN["data"]["data"][0]["paragraphs"][0]["qas"]
    gold = {each["id"]: [answer["text"] for answer in each["answers"]] for each in questions}
    scores = cmrc_scores.cmrc2018(gold, GOLDEN["predictions"])
    assert scores.pop("TOTAL") == GOLDEN["scores"]["TOTAL"]
    assert scores.pop("SKIP") == GOLDEN["scores"]["SKIP"] == 1
    for name, value in scores.items():
        assert f"{value:.3f}" == GOLDEN["scores"][name]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("人民大学", "人 民 大 学"),
        (" 1998年ABC公司 ", "1998 年 abc 公 司"),
        ("Michael Jordan是", "michael jordan 是"),
        ("“北京”，《上海》。", "北 京 上 海"),  # listed punctuation does not count
        ("abc-def_g", "abcdefg"),  # and splits nothing
        ("50%（约3,000人）", "50 % 约 3,000 人"),
        ("it's, don't!", "it 's , do n't !"),
        ("U.S. (a.b.)", "u.s. ( a.b . )"),  # the last full stop of a run is separate
        ("end. 人", "end . 人"),
        ("wait...人", "wait ... 人"),
        ('"ok" 人"', '`` ok " 人 ``'),
        ("𠮷人", "𠮷 人"),  # a rare character is no Chinese one by the script's range
        ("，。", ""),
    ],
)
def test_segments(text, expected):
    assert cmrc_scores.segments(text) == expected.split()


@pytest.mark.parametrize(
    "answer, predicted, expected",
    [
        ("中国人民大学", "人民大学", 0.8),  # run of 4 of 6 and of 4
        ("一二三四", "一二四三", 0.5),  # a run, not a bag: 2 of 4 and of 4
        ("一二三四", "四", 0.4),
        ("北京。", "北京", 1),
        ("北京", "上海", 0),
        ("北京", "", 0),
        ("。", "。", 0),  # no segment counts, none is common
    ],
)
def test_f1_by_hand(answer, predicted, expected):
    assert cmrc_scores.f1(answer, predicted) == pytest.approx(expected)


def test_the_best_gold_answer_counts_and_a_missing_prediction_is_zero():
    gold = {"a": ["上海", "北京市", "北京"], "b": ["广州"]}
    expected = {"AVERAGE": 50, "F1": 50, "EM": 50, "TOTAL": 2, "SKIP": 1}
    assert cmrc_scores.cmrc2018(gold, {"a": "北京"}) == expected


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="There are no questions to score"):
        cmrc_scores.cmrc2018({}, {})
    with pytest.raises(ValueError, match="'q' has no answer, which CMRC 2018 requires"):
        cmrc_scores.cmrc2018({"q": []}, {"q": ""})
