. ./sum.sh
got=$(sum 2 3)
[ "$got" = 5 ] || { echo "sum 2 3 is $got, want 5"; exit 1; }
