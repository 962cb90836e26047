package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// sample is one start of a process.
type sample struct {
	ready    time.Duration
	rss      float64 // MiB
	cpu      float64 // ms per s while idle
	switches float64 // per s while idle
}

// settles is how long a daemon that has just started is left alone before it counts as idle.
const settles = 2 * time.Second

func benchStart(ctx context.Context, o Options) ([]Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(self)
	if err != nil {
		return nil, err
	}

	out, err := startBesideFloor(ctx, self, o)
	if err != nil {
		return nil, err
	}

	size := float64(info.Size()) / 1e6
	out = append(out, Figure{"the program", size, 0, "MB", 0, "≤ 40 MB", size <= 40})
	version, err := timeCommand(ctx, self, "version", 8, 4*o.Passes, "version")
	if err != nil {
		return nil, err
	}
	out = append(out, version)

	for _, h := range []startHome{{jobs: 10, agents: 1, goal: 0}, {jobs: 1000, agents: 100, goal: 40}, {jobs: 10_000, agents: 1000, goal: 500}} {
		fmt.Fprintf(o.Progress, "%s jobs\n", grouped(h.jobs))
		figures, err := h.measure(ctx, self, o)
		if err != nil {
			return nil, err
		}
		out = append(out, figures...)
	}
	return out, nil
}

// startBesideFloor starts a daemon of ten jobs and the floor program in turns. Without the program, the daemon is measured alone.
func startBesideFloor(ctx context.Context, self string, o Options) ([]Figure, error) {
	h := startHome{jobs: 10, agents: 1}
	if err := h.write(); err != nil {
		return nil, err
	}
	defer h.remove()

	dir, err := os.MkdirTemp("", "rouse-floor")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	program, err := buildFloor(ctx, dir)
	if err != nil {
		fmt.Fprintln(o.Progress, "the floor is not measured:", err)
	}

	// A home is made once, and started many times.
	if _, err := observe(ctx, 0, nil, self, "serve", "--config", h.config); err != nil {
		return nil, err
	}

	var ready, floorReady, rss, floorRSS, cpu, switches []float64
	for pass := range o.Passes {
		fmt.Fprintf(o.Progress, "pass %d of %d\n", pass+1, o.Passes)
		if program != "" {
			floor, err := observe(ctx, 0, nil, program, dir)
			if err != nil {
				return nil, err
			}
			floorReady, floorRSS = append(floorReady, floor.ready.Seconds()*1000), append(floorRSS, floor.rss)
		}

		s, err := observe(ctx, o.Idle, nil, self, "serve", "--config", h.config)
		if err != nil {
			return nil, err
		}
		ready, rss = append(ready, s.ready.Seconds()*1000), append(rss, s.rss)
		cpu, switches = append(cpu, s.cpu), append(switches, s.switches)
	}

	return []Figure{
		besideFloor("ready, 10 jobs", "ms", ready, floorReady),
		besideFloor("RSS, 10 jobs", "MiB", rss, floorRSS),
		{"idle CPU", median(cpu), 0, "ms/s", 0, "≤ 0.5 ms/s", median(cpu) <= 0.5},
		{"idle context switches of the main thread", median(switches), 0, "1/s", 0, "≤ 1/s", median(switches) <= 1},
	}, nil
}

// besideFloor is a figure that has no goal where the floor was not measured.
func besideFloor(name, unit string, values, floor []float64) Figure {
	if len(floor) == 0 {
		return Figure{Name: name, Value: median(values), Unit: unit}
	}
	ratio := median(ratios(values, floor))
	return Figure{name, median(values), median(floor), unit, ratio, "≤ 3× floor", ratio <= 3}
}

// startHome is a configuration of so many daily jobs.
type startHome struct {
	jobs, agents int
	goal         float64 // ms until it is ready; 0: none
	dir, config  string
}

func (h *startHome) write() (err error) {
	if h.dir, err = os.MkdirTemp("", "rouse-bench"); err != nil {
		return err
	}

	var text strings.Builder
	text.WriteString("version: 1\nhome: ./home\ndashboard: {listen: \"127.0.0.1:0\"} # another daemon may have the default\nagents:\n")
	for i := range h.agents {
		fmt.Fprintf(&text, "  - {name: a%d}\n", i)
	}

	text.WriteString("jobs:\n")
	for i := range h.jobs {
		fmt.Fprintf(&text, "  - {name: j%d, agent: a%d, schedule: \"%d %d * * *\", playbook: [{call: db_schema}]}\n", i, i%h.agents, i%60, i/60%24)
	}

	h.config = filepath.Join(h.dir, "rouse.yaml")
	return os.WriteFile(h.config, []byte(text.String()), 0o600)
}

func (h *startHome) remove() { os.RemoveAll(h.dir) }

// measure starts a daemon on the home, and asks it and then the home without it. The first start of a home, which makes it, is not timed.
func (h startHome) measure(ctx context.Context, self string, o Options) (out []Figure, err error) {
	if err := h.write(); err != nil {
		return nil, err
	}
	defer h.remove()

	var ready []float64
	for pass := range o.Passes + 1 {
		var asked func() error
		if pass == o.Passes {
			asked = func() (err error) {
				out, err = h.verbs(ctx, self, "with a daemon", o.Passes)
				return err
			}
		}
		s, err := observe(ctx, 0, asked, self, "serve", "--config", h.config)
		if err != nil {
			return nil, err
		}
		if pass > 0 {
			ready = append(ready, s.ready.Seconds()*1000)
		}
	}

	alone, err := h.verbs(ctx, self, "without", o.Passes)
	if err != nil {
		return nil, err
	}

	f := Figure{Name: fmt.Sprintf("ready, %s jobs of %s agents", grouped(h.jobs), grouped(h.agents)), Value: median(ready), Unit: "ms"}
	if h.goal > 0 {
		f.Goal, f.Met = fmt.Sprintf("≤ %g ms", h.goal), f.Value <= h.goal
	}
	return append(append([]Figure{f}, out...), alone...), nil
}

// observe starts a program with arguments, waits for its ready line, looks at it, and has it asked; asked may be nil.
func observe(ctx context.Context, idle time.Duration, asked func() error, program string, args ...string) (s sample, err error) {
	child := exec.CommandContext(ctx, program, args...)
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

	if err := s.read(child.Process.Pid, idle); err != nil || asked == nil {
		return s, err
	}
	return s, asked()
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

	// What a daemon does once it is ready, as looking for what is old, is not what it does while it is idle.
	time.Sleep(settles)
	if before, err = readProcess(pid); err != nil {
		return fmt.Errorf("the idle daemon is gone: %w", err)
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

// process is what the system knows of one: its memory in MiB, its processor time in ms, how often its main thread waited.
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

	// By thread: the sum that the system keeps of a process is in ticks of 10 ms, of which an idle one has few.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return p, err
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // it ended meanwhile
			continue
		}
		if err != nil {
			return p, err
		}

		var ns float64
		if _, err := fmt.Sscan(string(text), &ns); err != nil {
			return p, err
		}
		p.cpu += ns / 1e6
	}

	return p, nil
}
