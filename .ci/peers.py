"""What .ci/peers measures of other programs: start PASSES PATTERN COMMAND…, and drop FILES FOLDER COMMAND… of one that prints
"ready", and "seen NANOSECONDS" of the monotonic clock for each file."""
import os, re, statistics, subprocess, sys, time


def begin(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def wait(child, pattern):
    for line in child.stdout:
        if found := re.search(pattern, line):
            return found
    sys.exit(f"{child.args[0]} ended before it said {pattern}")


def end(child):
    child.terminate()
    child.communicate()


def cpu(pid):  # ms, in user and system mode
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def start(passes, pattern, *command):
    ready, rss, idle = [], [], []
    for _ in range(int(passes)):
        began = time.monotonic()
        child = begin(command)
        wait(child, pattern)
        ready.append((time.monotonic() - began) * 1000)

        time.sleep(0.5)  # what still starts behind the line is no idling
        before = cpu(child.pid)
        time.sleep(5)
        idle.append((cpu(child.pid) - before) / 5)
        status = open(f"/proc/{child.pid}/status").read()
        rss.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024)
        end(child)
    print(f"{statistics.median(ready):.0f}\t{statistics.median(rss):.1f}\t{statistics.median(idle):.1f}")


def drop(files, folder, *command):
    child, took = begin(command), []
    wait(child, "^ready")
    for i in range(int(files)):
        beside = f"{folder}.{i}"
        open(beside, "w").close()
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.rename(beside, os.path.join(folder, str(i)))
        took.append((int(wait(child, r"^seen (\d+)")[1]) - at) / 1e6)
    end(child)
    print(f"{statistics.median(took):.1f}")


{"start": start, "drop": drop}[sys.argv[1]](*sys.argv[2:])
