# Reference script, then verifier, in one world; run by /bin/sh of the task's own image.
# $1 working directory, $2 "oracle" or "nop". Phase environments come as QH_SOLVE_ENV and
# QH_TEST_ENV: shell assignments already quoted by the caller. Each phase's output and exit status
# become files below /qh/out, which are read after every process is dead.
workdir=$1 probe=$2
solve_env=$QH_SOLVE_ENV test_env=$QH_TEST_ENV
unset QH_SOLVE_ENV QH_TEST_ENV
mkdir -p /logs/verifier /logs/agent /logs/artifacts "$workdir" 2>/dev/null
cd "$workdir" || exit 90
shell=bash
command -v bash >/dev/null 2>&1 || shell=sh
if [ "$probe" = oracle ]; then
  eval "env $solve_env $shell /solution/solve.sh" >/qh/out/solve.log 2>&1 </dev/null
  echo "$?" >/qh/out/solve.exit
fi
# What a solution wrote here is not the verifier's word.
rm -rf /logs/verifier/reward.txt /logs/verifier/reward.json
if ! cd "$workdir"; then
  echo "the reference removed $workdir" >/qh/out/test.log
  echo 90 >/qh/out/test.exit
  exit 0
fi
eval "env $test_env $shell /tests/test.sh" >/qh/out/test.log 2>&1 </dev/null
echo "$?" >/qh/out/test.exit
