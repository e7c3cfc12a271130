# ruff: noqa: E501
"""Small tables in the forms of public data sets, with made-up texts, and what each is for."""

import json

WORDS = "slow bright film story actor plot sad lovely dull great music scene long short".split()


def text(number: int, words: int = 8) -> str:
    return " ".join(WORDS[(number * 5 + i * (number + 3)) % len(WORDS)] for i in range(words))


def table(header, row, separator=",", rows=40):
    """A table: `row` returns the cells of row n."""
    lines = [separator.join(map(str, row(number))) for number in range(rows)]
    return "\n".join([header, *lines] if header else lines) + "\n"


def objects(row, rows=40):
    return "".join(json.dumps(row(number)) + "\n" for number in range(rows))


def pick(number, *values):
    return values[number * 7 % len(values)]


def sentence(n):
    return f"{text(n)} {n}"


CLASS, MULTI, NUMBER = "classification", "multi_label", "regression"
CHOICE = "multiple_choice"
DATE = "Mon Apr 06 22:19:{:02} PDT 2009"

# Name of the form, file, content, task, first text, second text, label.
FORMS = [
    ("imdb", "a.csv", table("review,sentiment", lambda n: (sentence(n), pick(n, "positive", "negative"))),
     CLASS, "review", "", "sentiment"),
    ("sst2", "a.tsv", table("sentence\tlabel", lambda n: (sentence(n), n % 2), "\t"), CLASS, "sentence", "", "label"),
    ("mrpc", "a.tsv", table("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        lambda n: (n % 2, 1000 + n, 2000 + n, sentence(n), sentence(n + 1)), "\t"),
     CLASS, "#1 String", "#2 String", "Quality"),
    ("qqp", "a.tsv", table("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        lambda n: (n, 2 * n, 2 * n + 1, sentence(n), sentence(n + 1), n % 2), "\t"),
     CLASS, "question1", "question2", "is_duplicate"),
    ("rte", "a.tsv", table("index\tsentence1\tsentence2\tlabel",
        lambda n: (n, sentence(n), sentence(n + 1), pick(n, "entailment", "not_entailment")), "\t"),
     CLASS, "sentence1", "sentence2", "label"),
    ("qnli", "a.tsv", table("index\tquestion\tsentence\tlabel",
        lambda n: (n, sentence(n), sentence(n + 1), pick(n, "entailment", "not_entailment")), "\t"),
     CLASS, "question", "sentence", "label"),
    ("stsb", "a.tsv", table("index\tgenre\tsentence1\tsentence2\tscore",
        lambda n: (n, "news", sentence(n), sentence(n + 1), n / 8), "\t"), NUMBER, "sentence1", "sentence2", "score"),
    ("snli", "a.jsonl", objects(lambda n: {"gold_label": pick(n, "neutral", "entailment", "contradiction"),
        "sentence1": sentence(n), "sentence2": sentence(n + 1), "pairID": f"{n}r"}),
     CLASS, "sentence1", "sentence2", "gold_label"),
    ("paws", "a.tsv", table("id\tsentence1\tsentence2\tlabel",
        lambda n: (n, sentence(n), sentence(n + 1), n % 2), "\t"), CLASS, "sentence1", "sentence2", "label"),
    ("sent140", "a.csv", table("", lambda n: (4 * (n % 2), 146781 + n, DATE.format(n), "NO_QUERY", f"user{n}", sentence(n))),
     CLASS, "5", "", "0"),
    ("sent140 quoted", "a.csv", table("", lambda n: tuple(f'"{c}"' for c in (4 * (n % 2), 146 + n, DATE.format(0), "NO_QUERY", f"u{n}", sentence(n)))),
     CLASS, "5", "", "0"),
    ("airline", "a.csv", table("tweet_id,airline_sentiment,airline_sentiment_confidence,airline,airline_sentiment_gold,name,retweet_count,text",
        lambda n: (570306 + n, pick(n, "neutral", "positive", "negative"), n / 50, pick(n // 2, "United", "Delta"), "", f"n{n}", 0, sentence(n))),
     CLASS, "text", "", "airline_sentiment"),
    ("spam kaggle", "a.csv", table("v1,v2,,,", lambda n: (pick(n, "ham", "spam"), sentence(n), "", "", "")), CLASS, "v2", "", "v1"),
    ("spam uci", "a.tsv", table("", lambda n: (pick(n, "ham", "spam"), sentence(n)), "\t"), CLASS, "1", "", "0"),
    ("is_spam", "a.csv", table("message_id,body,is_spam", lambda n: (n, sentence(n), n % 2)), CLASS, "body", "", "is_spam"),
    ("toxic", "a.csv", table("id,comment_text,toxic,severe_toxic,insult", lambda n: (f"{n:x}", sentence(n), n % 2, 0, n % 3 == 0 and 1 or 0)),
     MULTI, "comment_text", "", "toxic,severe_toxic,insult"),
    ("bias", "a.csv", table("id,target,comment_text,rating", lambda n: (n, n / 40, sentence(n), pick(n, "approved", "rejected"))),
     NUMBER, "comment_text", "", "target"),
    ("insincere", "a.csv", table("qid,question_text,target", lambda n: (f"q{n}", sentence(n), n % 2)), CLASS, "question_text", "", "target"),
    ("disaster", "a.csv", table("id,keyword,location,text,target", lambda n: (n, pick(n, "fire", "flood", ""), "", sentence(n), n % 2)),
     CLASS, "text", "", "target"),
    ("authors", "a.csv", table("id,text,author", lambda n: (f"id{n}", sentence(n), pick(n, "EAP", "HPL", "MWS"))), CLASS, "text", "", "author"),
    ("ag news", "a.csv", table("", lambda n: (1 + n % 4, sentence(n), sentence(n + 1))), CLASS, "1", "2", "0"),
    ("dbpedia 14", "a.csv", table("", lambda n: (1 + n % 14, sentence(n)), rows=56), CLASS, "1", "", "0"),
    ("yelp", "a.csv", table("", lambda n: (f'"{1 + n % 5}"', f'"{sentence(n)}"')), CLASS, "1", "", "0"),
    ("amazon", "a.csv", table("Id,ProductId,HelpfulnessNumerator,Score,Time,Summary,Text",
        lambda n: (n, f"B00{n}", n % 3, 1 + n % 5, 1303862400 + n, text(n, 2), sentence(n))), CLASS, "Text", "", "Score"),
    ("corona", "a.csv", table("UserName,ScreenName,Location,TweetAt,OriginalTweet,Sentiment",
        lambda n: (3799 + n, 48751 + n, pick(n, "London", "", "UK"), "16-03-2020", sentence(n), pick(n, "Neutral", "Positive"))),
     CLASS, "OriginalTweet", "", "Sentiment"),
    ("phrasebank", "a.csv", table("", lambda n: (pick(n, "neutral", "positive", "negative"), sentence(n))), CLASS, "1", "", "0"),
    ("banking77", "a.csv", table("text,category", lambda n: (sentence(n), f"intent {n % 10}")), CLASS, "text", "", "category"),
    ("setfit", "a.jsonl", objects(lambda n: {"text": sentence(n), "label": n % 2, "label_text": pick(n, "a", "b")}), CLASS, "text", "", "label"),
    ("77 numbers", "a.csv", table("text,label", lambda n: (sentence(n), n % 77), rows=308), CLASS, "text", "", "label"),
    ("emotions", "a.csv", table("", lambda n: (sentence(n), pick(n, "joy", "fear", "anger")), ";"), CLASS, "0", "", "1"),
    ("go emotions", "a.tsv", table("", lambda n: (sentence(n), "2,27" if n % 8 == 0 else pick(n, "2", "27", "3"), f"ee{n}x"), "\t"), MULTI, "0", "", "1"),
    ("multi-hot", "a.jsonl", objects(lambda n: {"text": sentence(n), "labels": [n % 2, 0, 1]}), MULTI, "text", "", "labels"),
    ("pandas lists", "a.csv", table("text,labels", lambda n: (sentence(n), pick(n, "['joy']", "\"['joy', 'fear']\"", "[]"))), MULTI, "text", "", "labels"),
    ("doccano classes", "a.jsonl", objects(lambda n: {"id": n, "text": sentence(n), "label": [pick(n, "pos", "neg")]}), CLASS, "text", "", "label"),
    ("decimal comma", "a.csv", table("text;label", lambda n: (sentence(n), f"{n // 8},{n % 8}"), ";"), NUMBER, "text", "", "label"),
    ("thousands", "a.csv", table("text,price", lambda n: (sentence(n), f'"{1 + n % 9},{100 + n}.50"')), NUMBER, "text", "", "price"),
    ("empty number", "a.csv", table("text,label", lambda n: (sentence(n), "" if n == 3 else n / 10)), NUMBER, "text", "", "label"),
    ("NaN", "a.csv", table("text,label", lambda n: (sentence(n), "NaN" if n == 3 else n / 10)), NUMBER, "text", "", "label"),
    ("pipe", "a.csv", table("text|label", lambda n: (f"{sentence(n)}, and", pick(n, "a", "b")), "|"), CLASS, "text", "", "label"),
    ("semicolon without header", "a.csv", table("", lambda n: (f"{sentence(n)}, and", pick(n, "a", "b")), ";"), CLASS, "0", "", "1"),
    ("tabs in .csv", "a.csv", table("text\tlabel", lambda n: (f"{sentence(n)}, and; so", pick(n, "a", "b")), "\t"), CLASS, "text", "", "label"),
    ("camel", "a.csv", table("ItemID,Sentiment,SentimentText", lambda n: (n, n % 2, sentence(n))), CLASS, "SentimentText", "", "Sentiment"),
    ("review score", "a.csv", table("id,review_score,review_text", lambda n: (n, n % 25, sentence(n)), rows=100), NUMBER, "review_text", "", "review_score"),
    ("tickets", "a.csv", table("ticket_number,created_at,body,ticket_type", lambda n: (n, f"2020-01-{n % 28 + 1:02}", sentence(n), pick(n, "bug", "wish"))),
     CLASS, "body", "", "ticket_type"),
    ("stance", "a.csv", table("ID,Target,Tweet,Stance", lambda n: (n, pick(n, "Climate", "Feminism"), sentence(n), pick(n, "FAVOR", "NONE", "AGAINST"))),
     CLASS, "Tweet", "", "Stance"),
    ("copa", "a.jsonl", objects(lambda n: {"premise": sentence(n), "choice1": text(n, 3), "choice2": text(n, 4), "question": pick(n, "cause", "effect"), "label": n % 2}),
     CHOICE, "premise", "question", "label"),
    ("piqa", "a.jsonl", objects(lambda n: {"goal": sentence(n), "sol1": text(n, 5), "sol2": text(n, 6), "label": n % 2}), CHOICE, "goal", "", "label"),
    ("hellaswag", "a.jsonl", objects(lambda n: {"ind": n, "ctx_a": text(n, 4), "ctx_b": "then", "ctx": sentence(n), "endings": [text(n, 3), text(n, 5)], "label": str(n % 2)}),
     CHOICE, "ctx", "", "label"),
    ("race", "a.jsonl", objects(lambda n: {"example_id": f"h{n}", "article": sentence(n), "question": text(n, 4), "options": [text(n, 2), text(n, 3)], "answer": pick(n, "A", "B")}),
     CHOICE, "article", "question", "answer"),
    ("array on one line", "a.jsonl", json.dumps([{"text": sentence(n), "label": n % 2} for n in range(40)]), CLASS, "text", "", "label"),
    ("marks as classes", "a.csv", table("text,polarity", lambda n: (sentence(n), pick(n, "+", "-"))), CLASS, "text", "", "polarity"),
    ("constant label", "a.csv", table("text,source,kind", lambda n: (sentence(n), "web", pick(n, "a", "b"))), CLASS, "text", "", "kind"),
]  # fmt: skip
