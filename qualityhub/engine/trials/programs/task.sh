# Reference script, then verifier, in one world; run by /bin/sh of the task's own image.
# $1 working directory, $2 "oracle" or "nop". Phase environments come as QH_SOLVE_ENV and
# QH_TEST_ENV: shell assignments already quoted by the caller. Each phase's output and exit status
# become files below /qh/out, which are read after every process is dead. What a variation shows
# goes to standard output, which no phase is given: "name value", before anything foreign runs.
workdir=$1 probe=$2
solve_env=$QH_SOLVE_ENV test_env=$QH_TEST_ENV
varied=$QH_VARIED clock=$QH_CLOCK library=$QH_CLOCK_LIBRARY load=${QH_LOAD:-0} manner=$QH_MANNER
unset QH_SOLVE_ENV QH_TEST_ENV QH_VARIED QH_CLOCK QH_CLOCK_LIBRARY QH_LOAD QH_MANNER
mkdir -p /logs/verifier /logs/agent /logs/artifacts "$workdir" 2>/dev/null
cd "$workdir" || exit 90
shell=bash
command -v bash >/dev/null 2>&1 || shell=sh

shifted() {
  [ "$2" ] && [ $(($2 - $1 - ${clock#+})) -ge -5 ] && [ $(($2 - $1 - ${clock#+})) -le 5 ]
}

# Programs of this world that run with another clock than the shifted one, whenever they are seen.
watch_clock() {
  read -r self before </proc/self/stat
  known="$known $self" before=
  while :; do
    static=$(echo $(grep -L "libfaketime\|/ld-" /proc/[0-9]*/maps 2>/dev/null))
    now=$(echo $(grep -L libfaketime /proc/[0-9]*/maps 2>/dev/null))
    for maps in $now; do
      process=${maps#/proc/}
      process=${process%/maps}
      case " $known " in *" $process "*) continue ;; esac
      # One that is just starting has its loader mapped, and the library soon.
      case " $static $before " in *" $maps "*) ;; *) continue ;; esac
      program=$(readlink "/proc/$process/exe" 2>/dev/null) || continue
      case " $told " in *" $program "*) continue ;; esac
      told="$told $program"
      echo "escaped ${program##*/}"
    done
    before=$now
    sleep 0.1
  done
}

# What the scripts name and no library can be preloaded into, or start without it.
name_escapes() {
  cat /tests/*.sh /solution/*.sh 2>/dev/null | tr -cs 'A-Za-z0-9_./-' '\n' | sort -u |
    while read -r word; do
      case $word in
        LD_PRELOAD | FAKETIME) echo "cleared $word" ;;
        *[a-z]*) ;;
        *) continue ;;
      esac
      file=$(command -v -- "$word" 2>/dev/null)
      case $file in */*) [ -f "$file" ] || continue ;; *) continue ;; esac
      [ "$(head -c 4 "$file" 2>/dev/null | tr -d '\177')" = ELF ] || continue
      head -c 4096 "$file" | tr '\0' '\n' | grep -q /ld- || echo "static ${file##*/}"
    done
  if grep -qsE '(^|[^a-z])env +(-[a-hj-z]*i|--ignore|- )' /tests/*.sh /solution/*.sh; then
    echo "cleared env -i"
  fi
}

if [ "$varied" ]; then
  echo "umask $(umask)"
  echo "hostname $(cat /proc/sys/kernel/hostname 2>/dev/null)"
  echo "timezone $(date +%z 2>/dev/null)"
  echo "cpus $(grep Cpus_allowed_list /proc/self/status 2>/dev/null | tr -d '[:space:]')"
  echo "user $USER"
  echo "noise $(env | grep -c '^UNRELATED_')"
  if locale 2>&1 >/dev/null | grep -q .; then echo "locale"; else echo "locale $LC_ALL"; fi
fi
while [ "$load" -gt 0 ]; do
  (while :; do :; done) >/dev/null 2>&1 </dev/null &
  load=$((load - 1))
done
if [ "$clock" ]; then
  true=$(date +%s 2>/dev/null)
  seen=$(FAKETIME=$clock DONT_FAKE_MONOTONIC=1 LD_PRELOAD=$library date +%s 2>/dev/null)
  if shifted "${true:-0}" "$seen"; then
    export FAKETIME="$clock" DONT_FAKE_MONOTONIC=1 LD_PRELOAD="$library"
    if command -v python3 >/dev/null 2>&1; then
      seen=$(python3 -I -S -c 'import time; print(int(time.time()))' 2>/dev/null)
    fi
    if shifted "$true" "$seen"; then echo "clock $clock"; else echo "clock-of-python"; fi
    if grep -rqs mtime /tests || grep -rqsE -e "-(newer|mmin|mtime|ctime)" /tests; then
      echo "file-times"
    fi
    name_escapes 2>/dev/null </dev/null
    known=$(cd /proc && echo [0-9]*)
    watch_clock 2>/dev/null </dev/null &
  fi
fi
if [ "$manner" = reversed ]; then
  export PYTEST_PLUGINS="qh_reversed${PYTEST_PLUGINS:+,$PYTEST_PLUGINS}"
  export PYTHONPATH="/qh/programs/plugins${PYTHONPATH:+:$PYTHONPATH}"
fi

# Whether a process that the solution started is still there: it has lost its parent.
left_running() {
  for process in /proc/[0-9]*; do
    case " $before " in *" ${process#/proc/} "*) continue ;; esac
    state= parent=
    while read -r name value _; do
      case $name in State:) state=$value ;; PPid:) parent=$value && break ;; esac
    done 2>/dev/null <"$process/status"
    case $state$parent in [ZX]*) ;; [A-Za-z]1) return 0 ;; esac
  done 2>/dev/null
  return 1
}

# Whether anybody writes rewards while no verifier runs.
is_forged() {
  echo 'not a reward' >/logs/verifier/reward.txt
  sleep 1
  said=
  { read -r said </logs/verifier/reward.txt; } 2>/dev/null
  [ "$said" != 'not a reward' ] || [ -e /logs/verifier/reward.json ]
}

fresh_rewards() {
  rm -rf /logs/verifier
  mkdir -p /logs/verifier 2>/dev/null
  rm -rf /logs/verifier/reward.txt /logs/verifier/reward.json
}

forged= left=
if [ "$probe" = oracle ]; then
  before=$(cd /proc && echo [0-9]*)
  eval "env $solve_env $shell /solution/solve.sh" >/qh/out/solve.log 2>&1 </dev/null
  echo "$?" >/qh/out/solve.exit
  # What a solution wrote here is not the verifier's word, and the tests are as they were.
  rm -rf /qh/out/test.log /qh/out/test.exit /qh/out/forged
  fresh_rewards
  if [ -d /qh/tests ] && command -v cp >/dev/null 2>&1; then
    rm -rf /tests/* /tests/.[!.]* /tests/..?* 2>/dev/null
    cp -a /qh/tests/. /tests/ 2>/dev/null
  fi
  if left_running; then
    left=yes
    if is_forged; then
      # What writes rewards is no service that the task needs: the verifier runs without it.
      forged=before left=
      kill -9 -1
    fi
    fresh_rewards
  fi
fi
if ! cd "$workdir"; then
  echo "the reference removed $workdir" >/qh/out/test.log
  echo 90 >/qh/out/test.exit
  exit 0
fi
eval "env $test_env $shell /tests/test.sh" >/qh/out/test.log 2>&1 </dev/null
status=$?
if [ "$left" ]; then
  # The same again: it may have waited for the verifier.
  had_txt= had_json=
  reward_txt=$(head -c 65536 /logs/verifier/reward.txt 2>/dev/null)
  reward_json=$(head -c 65536 /logs/verifier/reward.json 2>/dev/null)
  [ -f /logs/verifier/reward.txt ] && had_txt=yes
  [ -f /logs/verifier/reward.json ] && had_json=yes
  fresh_rewards
  is_forged && forged=after
  # From here on nobody else writes anything.
  kill -9 -1
  fresh_rewards
  [ "$had_txt" ] && printf '%s\n' "$reward_txt" >/logs/verifier/reward.txt
  [ "$had_json" ] && printf '%s\n' "$reward_json" >/logs/verifier/reward.json
fi
[ "$forged" ] && echo "$forged" >/qh/out/forged
echo "$status" >/qh/out/test.exit
