#!/usr/bin/env bash
# Prints which layers of the tests notice the absence of each rule of the core: a table for
# docs/verification.md. An empty cell: that layer is not known to notice. A filled one that is not true
# any more fails that layer's own test.
set -euo pipefail
cd "$(dirname "$0")/.."

layer() { cargo test -q --features mutants --test "$1" -- "$2" --nocapture; }

marks=$(layer marks table)
model=$(layer model each_mutant_is_caught)
swarm=$(layer simulation swarm_notices_missing_rules)

echo '| without this rule | trace | model: broken after | simulation: broken at seed |'
echo '|---|---|---|---|'
awk -F ' *[|] *' '
    FNR == 1 { file++ }
    file == 1 && $4 + 0 > 0 { model[$2] = $3 ", " $4 " steps" }
    file == 2 && $4 + 0 > 0 { swarm[$2] = $3 ", " $4 }
    file == 3 && $2 ~ /^[A-Z]/ && $6 != "" {
        sub(/^Mutant: /, "", $3)
        printf "| %s: %s | %s: %s | %s | %s |\n", $2, $3, $4, $6, model[$2], swarm[$2]
        rows++
    }
    END { if (rows < 30) { print "rows: " rows > "/dev/stderr"; exit 1 } }
' <(printf '%s\n' "$model") <(printf '%s\n' "$swarm") <(printf '%s\n' "$marks")
