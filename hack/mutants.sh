#!/usr/bin/env bash
# Prints which layers of the tests notice each of the ten mutants of the core: a table for
# docs/verification.md. A mutant that a layer does not notice fails that layer's own test.
set -euo pipefail
cd "$(dirname "$0")/.."

model=$(cargo test -q --features mutants --test model -- each_mutant_is_caught --nocapture)
marks=$(cargo test -q --features mutants --test marks -- table --nocapture)

echo '| mutant: without this rule | model: broken after | trace in tests/marks: without the rule |'
echo '|---|---|---|'
awk -F ' *[|] *' '
    NR == FNR { if (NF > 5 && $4 + 0 > 0) { property[$2] = $3; steps[$2] = $4 } ; next }
    $2 in steps {
        printf "| %s: %s | %s, %d steps | %s: %s |\n", $2, $3, property[$2], steps[$2], $4, tolower($6)
        rows++
    }
    END { if (rows != 10) { print "rows: " rows > "/dev/stderr"; exit 1 } }
' <(printf '%s\n' "$model") <(printf '%s\n' "$marks")
