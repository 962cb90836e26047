package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// BenchmarkServe builds the program without symbols and starts a daemon. One operation lasts until
// the daemon is ready. The benchmark also reports the time of "rouse runs" with a daemon, and the
// memory and CPU time of the idle daemon.
func BenchmarkServe(b *testing.B) {
	path := filepath.Join(b.TempDir(), "rouse")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-ldflags=-s -w", "-o", path, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, jobs := range []int{10, 1000, 10_000} {
		var text strings.Builder
		text.WriteString("version: 1\nhome: ./home\nagents: [{name: a}]\njobs:\n")
		for i := range jobs {
			fmt.Fprintf(&text, "  - {name: j%d, agent: a, schedule: \"%d %d 1 1 *\", playbook: [{call: db_schema}]}\n", i, i%60, i/60%24)
		}
		config := filepath.Join(cmdtest.Write(b, map[string]string{"rouse.yaml": text.String()}), "rouse.yaml")
		serve := func(b *testing.B) *endtoend.Program {
			p := endtoend.Rouse(b, "serve", "--config", config)
			p.Path = path
			p.UntilReady(b)
			return p
		}
		serve(b).Stop(b) // the first start creates the home

		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			for b.Loop() {
				p := serve(b)
				b.StopTimer()
				p.Stop(b)
				b.StartTimer()
			}

			p := serve(b)
			defer p.Stop(b)
			const verbs = 20
			began := time.Now()
			for range verbs {
				runs := endtoend.Rouse(b, "runs", "--config", config)
				runs.Path = path
				if err := runs.Run(); err != nil {
					b.Fatal(err, runs.Err.String())
				}
			}
			b.ReportMetric(time.Since(began).Seconds()*1000/verbs, "ms/verb")

			time.Sleep(2 * time.Second) // wait for the work after the start
			const idle = 10
			before := threadTime(b, p.Process.Pid)
			time.Sleep(idle * time.Second)
			b.ReportMetric((threadTime(b, p.Process.Pid)-before).Seconds()*1000/idle, "idle-cpu-ms/s")
			b.ReportMetric(memory(b, p.Process.Pid, "VmRSS:"), "idle-MiB")
			b.ReportMetric(memory(b, p.Process.Pid, "RssAnon:"), "idle-anon-MiB") // without pages of files, such as the program
		})
	}
}

// threadTime returns the CPU time of all threads of a process.
func threadTime(b *testing.B, pid int) (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range threads {
		var ns int64
		text, err := os.ReadFile(name)
		if err == nil {
			_, err = fmt.Sscan(string(text), &ns)
		}
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

// memory returns a line of /proc/PID/status in MiB.
func memory(b *testing.B, pid int, line string) (kib float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), line)
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(line, err)
	}
	return kib / 1024
}
