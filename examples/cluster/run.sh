#!/usr/bin/env bash
# Three nodes on this machine share a ledger: a clock ticks, a file is dropped, the node that does the ticks is killed with all
# that it had on its disk, then the one that leads. At the end each instant has one row, and each line of the file.
#   POSTGRES  the address of an empty database
#   ROUSE     the program; built from this folder when it is not set
set -euo pipefail
cd "$(dirname "$0")"
if [ -z "${POSTGRES:-}" ]; then
  echo "say where the ledger is to be: POSTGRES=postgres://USER@HOST/DATABASE $0" >&2
  exit 2
fi
state="${STATE:-$PWD/.rouse}"
mkdir -p "$state"
rouse="${ROUSE:-}"
if [ -z "$rouse" ]; then
  rouse="$state/rouse"
  (cd ../.. && go build -o "$rouse" ./cmd/rouse)
fi

# at NODE VERB …: a command beside a node.
at() { local node="$1"; shift; "$rouse" "$@" --config rouse.yaml --home "$state/$node"; }

declare -A pids
# serve NODE starts one, and waits until it is ready.
serve() {
  : >"$state/$1.out"
  # Of three on one machine none gets the port of the pages.
  ROUSE_DASHBOARD_LISTEN=off "$rouse" serve --node "$1" --config rouse.yaml --home "$state/$1" >>"$state/$1.out" 2>>"$state/$1.log" &
  pids[$1]=$!
  until grep -q '^ready' "$state/$1.out"; do
    kill -0 "${pids[$1]}" 2>/dev/null || { cat "$state/$1.log" >&2; exit 1; }
    sleep 0.1
  done
}
stop() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait; }
trap stop EXIT

# until_says WORDS COMMAND …: asks until the answer has the words, for a minute at most.
until_says() {
  local words="$1"; shift
  for _ in $(seq 300); do
    if "$@" 2>/dev/null | grep -q "$words"; then return; fi
    sleep 0.2
  done
  echo "$* did not say $words" >&2
  exit 1
}
# ticks is how many rows the clock has made.
ticks() { at "$reader" db clock query "select count(*) as n from ticks" 2>/dev/null | tail -1 | tr -dc 0-9 || true; }
# more_ticks N waits until there are so many more.
more_ticks() {
  local begun; begun="$(ticks)"
  for _ in $(seq 300); do
    if [ "$(ticks)" -ge "$((${begun:-0} + $1))" ] 2>/dev/null; then return; fi
    sleep 0.2
  done
  echo "the clock does not tick" >&2
  exit 1
}

# who WORD is the node in whose line of the status a word stands.
who() { at "$reader" engine status | awk -v word="$1" '$0 ~ word { print $1; exit }'; }
# holder is the node that has the rows of the clock.
holder() { at "$reader" engine status | awk '$1 == "clock" { print $2 }'; }
# read_from_other NODE: commands go to one that is not it.
read_from_other() { reader=north; if [ "$1" = north ]; then reader=south; fi; }

export ROUSE_SECRET_LEDGER="$POSTGRES"
reader=west
for node in north south west; do serve "$node"; done
echo "== three nodes"
at west engine status

echo "== a file for west"
printf 'item,price\npen,2\nink,9\ndesk,120\n' >inbox/.orders.part && mv inbox/.orders.part inbox/orders.csv
until_says success at north runs --job orders
at west db clerk query "select item, price from orders"
more_ticks 2

first="$(holder)"
echo "== $first, which does the ticks and has their rows, is killed, and its disk is lost"
kill -9 "${pids[$first]}"
rm -rf "${state:?}/${first:?}"
read_from_other "$first"
more_ticks 3
until_says "gone.*its process ended" at "$reader" engine status
second="$(holder)"
echo "== now $second does them, with the rows of $first"
at "$reader" engine status
at "$reader" db clock query "select count(*) as rows from ticks"
serve "$first"

leader="$(who leads)"
echo "== $leader, which leads, is killed"
kill -9 "${pids[$leader]}"
read_from_other "$leader"
more_ticks 3
serve "$leader"
at "$reader" why tick | head -20

echo "== each instant once: as many rows as instants, and none missing from the first to the last"
at "$reader" db clock query "select count(*) as rows, count(distinct at) as instants, (max(unixepoch(at)) - min(unixepoch(at))) / 2 + 1 as due from ticks"
