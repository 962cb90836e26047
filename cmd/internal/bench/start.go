package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/robfig/cron/v3"
	"github.com/spf13/viper"
)

// floor is the baseline of the start: what any program with these libraries costs.
func floor(ctx context.Context, dir string, out io.Writer) error {
	v := viper.New()
	v.SetDefault("log.level", "info")
	clock := cron.New()
	clock.Start()
	defer clock.Stop()

	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer events.Close()

	if err := events.Add(dir); err != nil {
		return err
	}

	db, err := sql.Open("sqlite", filepath.Join(dir, "floor.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()

	if _, err := db.ExecContext(ctx, "create table if not exists t(v); insert into t values (1)"); err != nil {
		return err
	}

	fmt.Fprintln(out, "ready")
	<-ctx.Done()
	return nil
}

// sample is one start of a process.
type sample struct {
	ready    time.Duration
	rss      float64 // MiB
	cpu      float64 // ms per s while idle
	switches float64 // per s while idle
}

func benchStart(ctx context.Context, o Options) ([]Figure, error) {
	var ready, floorReady, rss, floorRSS, cpu, switches []float64
	for pass := range o.Passes {
		fmt.Fprintf(o.Progress, "pass %d of %d\n", pass+1, o.Passes)
		floor, err := startFloor(ctx)
		if err != nil {
			return nil, err
		}

		s, err := startServe(ctx, 10, 1, o.Idle)
		if err != nil {
			return nil, err
		}

		ready, floorReady = append(ready, s.ready.Seconds()*1000), append(floorReady, floor.ready.Seconds()*1000)
		rss, floorRSS = append(rss, s.rss), append(floorRSS, floor.rss)
		cpu, switches = append(cpu, s.cpu), append(switches, s.switches)
	}

	jobs, err := startServe(ctx, 10_000, 1000, 0)
	if err != nil {
		return nil, err
	}

	readyRatio, rssRatio := median(ratios(ready, floorReady)), median(ratios(rss, floorRSS))
	return []Figure{
		{"ready, 10 jobs", median(ready), median(floorReady), "ms", readyRatio, "≤ 3× floor", readyRatio <= 3},
		{"RSS, 10 jobs", median(rss), median(floorRSS), "MiB", rssRatio, "≤ 3× floor", rssRatio <= 3},
		{"idle CPU", median(cpu), 0, "ms/s", 0, "≤ 0.5 ms/s", median(cpu) <= 0.5},
		{"idle context switches of the main thread", median(switches), 0, "1/s", 0, "≤ 1/s", median(switches) <= 1},
		{"ready, 10,000 jobs of 1,000 agents", jobs.ready.Seconds() * 1000, 0, "ms", 0, "≤ 1000 ms", jobs.ready <= time.Second},
	}, nil
}

func startFloor(ctx context.Context) (sample, error) {
	dir, err := os.MkdirTemp("", "rouse-floor")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(dir)
	return observe(ctx, 0, "bench", ChildVerb, "floor", dir)
}

// startServe starts a daemon with so many daily jobs.
func startServe(ctx context.Context, jobs, agents int, idle time.Duration) (sample, error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(dir)

	var text strings.Builder
	text.WriteString("version: 1\nhome: ./home\ndashboard: {listen: \"127.0.0.1:0\"} # another daemon may have the default\nagents:\n")
	for i := range agents {
		fmt.Fprintf(&text, "  - {name: a%d}\n", i)
	}

	text.WriteString("jobs:\n")
	for i := range jobs {
		fmt.Fprintf(&text, "  - {name: j%d, agent: a%d, schedule: \"%d %d * * *\", playbook: [{call: db_schema}]}\n", i, i%agents, i%60, i/60%24)
	}

	path := filepath.Join(dir, "rouse.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return sample{}, err
	}

	return observe(ctx, idle, "serve", "--config", path)
}

// observe starts this program with arguments, waits for its ready line, and looks at it.
func observe(ctx context.Context, idle time.Duration, args ...string) (s sample, err error) {
	self, err := os.Executable()
	if err != nil {
		return s, err
	}

	child := exec.CommandContext(ctx, self, args...)
	out, err := child.StdoutPipe()
	if err != nil {
		return s, err
	}

	var complaints strings.Builder
	child.Stderr = &complaints
	begin := time.Now()
	if err := child.Start(); err != nil {
		return s, err
	}

	defer func() {
		stopErr := child.Process.Signal(os.Interrupt)
		// Read to the end, or a child that still writes would block on a full pipe.
		_, copyErr := io.Copy(io.Discard, out)
		_ = child.Wait() // an interrupted floor exits as it likes
		err = errors.Join(err, stopErr, copyErr)
	}()

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			s.ready = time.Since(begin)
			break
		}
	}
	if s.ready == 0 {
		return s, fmt.Errorf("%s did not get ready: %s", strings.Join(args, " "), complaints.String())
	}

	return s, s.read(child.Process.Pid, idle)
}

// read reads what the system knows about a process; only Linux has it.
func (s *sample) read(pid int, idle time.Duration) error {
	before, err := readProcess(pid)
	if err != nil {
		return nil //nolint:nilerr // without /proc there is nothing to tell
	}

	s.rss = before.rss
	if idle <= 0 {
		return nil
	}

	time.Sleep(idle)
	after, err := readProcess(pid)
	if err != nil {
		return fmt.Errorf("the idle daemon is gone: %w", err)
	}

	s.cpu = (after.cpu - before.cpu) / idle.Seconds()
	s.switches = (after.switches - before.switches) / idle.Seconds()
	return nil
}

type process struct{ rss, cpu, switches float64 }

func readProcess(pid int) (process, error) {
	var p process
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, err
	}

	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			continue
		}

		switch key {
		case "VmRSS":
			p.rss = n / 1024
		case "voluntary_ctxt_switches":
			p.switches = n
		}
	}

	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}

	// The second field is the name in parentheses, which may hold spaces.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	for _, i := range []int{11, 12} { // utime and stime, in hundredths of a second
		if i < len(fields) {
			ticks, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return p, err
			}
			// In milliseconds.
			p.cpu += ticks * 10
		}
	}

	return p, nil
}
