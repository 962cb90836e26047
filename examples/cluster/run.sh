#!/usr/bin/env bash
# Starts three nodes on this machine that share one ledger, and lets nodes fail: the node that runs the clock is killed and its disk
# is deleted, the leader is killed, and a node is frozen. At the end the clock has exactly one row for each instant.
#   POSTGRES  URL of an empty database
#   ROUSE     path of the program; if unset, it is built from this repository
set -euo pipefail
cd "$(dirname "$0")"
if [ -z "${POSTGRES:-}" ]; then
  echo "set the database of the ledger: POSTGRES=postgres://USER@HOST/DATABASE $0" >&2
  exit 2
fi
state="${STATE:-$PWD/.rouse}"
mkdir -p "$state"
rouse="${ROUSE:-}"
if [ -z "$rouse" ]; then
  rouse="$state/rouse"
  (cd ../.. && go build -o "$rouse" ./cmd/rouse)
fi

# at NODE VERB … runs a command in the home of a node.
at() { local node="$1"; shift; "$rouse" "$@" --config rouse.yaml --home "$state/$node"; }

declare -A pids
# serve NODE starts a node and waits until it is ready.
serve() {
  : >"$state/$1.out"
  # The three nodes cannot share the port of the dashboard.
  ROUSE_DASHBOARD_LISTEN=off "$rouse" serve --node "$1" --config rouse.yaml --home "$state/$1" >>"$state/$1.out" 2>>"$state/$1.log" &
  pids[$1]=$!
  until grep -q '^ready' "$state/$1.out"; do
    kill -0 "${pids[$1]}" 2>/dev/null || { cat "$state/$1.log" >&2; exit 1; }
    sleep 0.1
  done
}
# stop ends all nodes. A frozen one has to be thawed first.
stop() { for pid in "${pids[@]}"; do kill -CONT "$pid" 2>/dev/null || true; kill "$pid" 2>/dev/null || true; done; wait; }
trap stop EXIT
# kill_node NODE kills a node as a power cut would.
kill_node() { kill -9 "${pids[$1]}"; wait "${pids[$1]}" 2>/dev/null || true; }
# ends NODE waits until a node has ended, and fails if it reports success.
ends() {
  for _ in $(seq 150); do
    if ! kill -0 "${pids[$1]}" 2>/dev/null; then
      if wait "${pids[$1]}"; then break; fi
      return
    fi
    sleep 0.2
  done
  echo "$1 did not end with a failure" >&2
  exit 1
}

# until_says WORDS COMMAND … repeats a command until its output contains the words, for at most a minute.
until_says() {
  local words="$1"; shift
  for _ in $(seq 300); do
    if "$@" 2>/dev/null | grep -q "$words"; then return; fi
    sleep 0.2
  done
  echo "$* did not say $words" >&2
  exit 1
}
# ticks prints the number of rows of the clock.
ticks() { at "$reader" db clock query "select count(*) as n from ticks" 2>/dev/null | tail -1 | tr -dc 0-9 || true; }
# more_ticks N waits for N further rows.
more_ticks() {
  local begun; begun="$(ticks)"
  for _ in $(seq 300); do
    if [ "$(ticks)" -ge "$((${begun:-0} + $1))" ] 2>/dev/null; then return; fi
    sleep 0.2
  done
  echo "the clock does not tick" >&2
  exit 1
}

# who WORD prints the first node that the status shows with a word.
who() { at "$reader" engine status | awk -v word="$1" '$0 ~ word { print $1; exit }'; }
# holder prints the node that has the database of the agent clock.
holder() { at "$reader" engine status | awk '$1 == "clock" { print $2 }'; }
# read_from_other NODE sends the next commands to another node.
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
echo "== $first, which runs the clock and has its rows, is killed, and its disk is deleted"
kill_node "$first"
rm -rf "${state:?}/${first:?}"
read_from_other "$first"
more_ticks 3
until_says "gone.*its process ended" at "$reader" engine status
echo "== now $(holder) runs the clock, with the rows of $first"
at "$reader" engine status
at "$reader" db clock query "select count(*) as rows from ticks"
serve "$first"

leader="$(who leads)"
echo "== $leader, which leads, is killed"
kill_node "$leader"
read_from_other "$leader"
more_ticks 3
echo "== now $(who leads) leads"
serve "$leader"
at "$reader" why tick | head -20

frozen="$(holder)"
echo "== $frozen, which runs the clock, is frozen"
kill -STOP "${pids[$frozen]}"
read_from_other "$frozen"
until_says "gone.*it is frozen" at "$reader" engine status
more_ticks 3
echo "== now $(holder) runs the clock; $frozen is still frozen"
at "$reader" engine status
kill -CONT "${pids[$frozen]}"
ends "$frozen"
echo "== $frozen was thawed, found that the others do its work, and ended; it is started again"
grep -o 'this node has lost its lease[^"]*' "$state/$frozen.log" | head -1
serve "$frozen"
more_ticks 2

echo "== each instant once: as many rows as instants, and none missing from the first to the last"
at "$reader" db clock query "select count(*) as rows, count(distinct at) as instants, (max(unixepoch(at)) - min(unixepoch(at))) / 2 + 1 as due from ticks"
