#!/bin/sh
# Runs one step of the Makefile and says so: what runs and how long it takes before, how long it took after.
#
#   hack/step.sh NAME WHAT "HOW LONG" COMMAND [ARGUMENT...]
#
# The exit code is the command's.
set -u

name=$1 what=$2 long=$3
shift 3
echo "==> $name: $what (on two cores $long)"
start=$(date +%s)
"$@"
code=$?
took=$(($(date +%s) - start))
if [ $code -eq 0 ]; then
	echo "==> $name: passed in $took s"
else
	echo "==> $name: FAILED after $took s" >&2
fi
exit $code
