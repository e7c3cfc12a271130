# shellcheck shell=bash
# Sourced by the scripts for NVIDIA GPUs: sets `xla_flags`, XLA's fast settings and then XLA_FLAGS.
#
# DETERMINISTIC=1 adds --xla_gpu_deterministic_ops=true, without which XLA sums in any order (atomics)
# and selects kernels by timing them at each start: a resumed run is then not equal to an uninterrupted
# one bit for bit. What it costs has not been measured.

# On an H100, BERT-Base takes these 574,000 instead of 535,000 tokens/s (docs/log/system.md).
xla_flags="--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_cublaslt=true"
if [[ -n ${DETERMINISTIC:-} ]]; then xla_flags+=" --xla_gpu_deterministic_ops=true"; fi
xla_flags+=" ${XLA_FLAGS:-}"
