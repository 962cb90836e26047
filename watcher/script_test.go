package watcher_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/runs"
	"rouse/internal/nofollow"
	"rouse/watcher"
	"rouse/watcher/after"
	"rouse/watcher/settle"
)

// TestScripts runs testdata/*.txt: operations on real files, and the runs that they cause (OSA-92,
// OSA-93: converge*.txt; OSA-94: nested.txt, vanishes.txt).
//
//	watch JOB DIR [mode=M] [recursive] [follow] [settle=D] [maxwait=D] [maxfiles=N]
//	          [include=G] [exclude=G] [takeopen] [exact] [definition=D] [existing=E]
//	          [success=A] [failure=A] [within=DIR]
//	                         sets a watch; A is delete or a destination; others create names in DIR
//	unwatch JOB              removes a watch
//	start, stop, reload      control the watcher; reload gives it the current watches
//	outcome O                runs end with O from now on; without O or with none, they stay queued
//	write|append PATH TEXT   write is atomic; both understand \n and \xNN
//	grow PATH N D            appends N bytes, one every D
//	store PATH TEXT          overwrites the beginning through a memory mapping
//	mkdir|remove|age PATH    age sets the times back by an hour, touch forward by one
//	rename|copy|link|hardlink OLD NEW
//	scan                     scans every folder, as after lost events
//	runs JOB RUN...          waits for exactly these runs, in this order: each is the name of its
//	                         file; for a batch its names joined by commas, and +N for N more;
//	                         for a folder its round and changes: 1:+added,-removed,~modified
//	set JOB RUN...           waits for the runs in any order
//	end JOB O [N]            ends the latest run or run N with O; retry JOB [N] queues it again
//	trigger JOB              triggers the folder; refused JOB TEXT: with an error that contains TEXT
//	quiet JOB                checks that one more file is taken and causes the only new run
//	gone PATH                waits until the path does not exist
//	file PATH TEXT           waits until the file contains TEXT
//	event KIND [TEXT]        waits for an event that contains TEXT
//	state JOB STATE          waits for the state of a watch
//	waits JOB PATH TEXT      waits until a file is held back for a reason that contains TEXT
//	open PATH TEXT           writes a file and keeps it open for writing, until close PATH
//	only SYSTEM              skips the rest on other systems
//	inbox TEXT               checks that the inbox has one item, which contains TEXT
//
// Paths are relative to the folder of the script.
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}

	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			s := &script{bench: newBench(t), watches: map[string]watcher.Watch{}, opened: map[string]*os.File{}, seen: map[string]int{}}
			text, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer text.Close()

			lines := bufio.NewScanner(text)
			for s.line = 1; lines.Scan(); s.line++ {
				if line, _, _ := strings.Cut(lines.Text(), "# "); strings.TrimSpace(line) != "" && line[0] != '#' {
					s.do(strings.Fields(line))
				}
			}
		})
	}
}

type script struct {
	*bench
	line    int
	watches map[string]watcher.Watch
	order   []string
	seen    map[string]int // runs of the command quiet, by job
	opened  map[string]*os.File
	since   time.Time // time of the last command about files
}

func (s *script) fatal(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("line %d: %s", s.line, fmt.Sprintf(format, args...))
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.fatal("%v", err)
	}
}

// text joins and unescapes the rest of a line.
func (s *script) text(words []string) string {
	out, err := strconv.Unquote(`"` + strings.Join(words, " ") + `"`)
	s.must(err)
	return out
}

func (s *script) at(word string) string { return s.path(s.text([]string{word})) }

func (s *script) do(words []string) {
	began := time.Now()
	defer func() { s.since = began }() // start of the command, which may act at its beginning

	s.what = fmt.Sprintf("line %d: %s", s.line, strings.Join(words, " "))
	args := words[1:]
	switch words[0] {
	case "watch":
		s.watch(args)
	case "unwatch":
		delete(s.watches, args[0])
		s.order = slices.DeleteFunc(s.order, func(job string) bool { return job == args[0] })
	case "start":
		s.start(s.all()...)
	case "stop":
		s.stop()
	case "reload":
		s.must(s.watcher.Set(s.t.Context(), s.all()))
	case "outcome":
		s.outcome = domain.Outcome(strings.TrimPrefix(args[0], "none"))
	case "end":
		s.end(s.run(args[0], args[2:]), domain.Outcome(args[1]))
	case "retry":
		_, err := s.ledger.Retry(s.t.Context(), s.run(args[0], args[1:]))
		s.must(err)
	case "trigger":
		_, err := s.watcher.Trigger(s.t.Context(), args[0])
		s.must(err)
	case "refused":
		if _, err := s.watcher.Trigger(s.t.Context(), args[0]); err == nil || !strings.Contains(err.Error(), strings.Join(args[1:], " ")) {
			s.fatal("%v", err)
		}
	case "scan":
		s.watcher.Scan()
	case "runs":
		s.runs(args[0], args[1:], false)
	case "set":
		s.runs(args[0], args[1:], true)
	case "quiet":
		s.quiet(args[0])
	case "gone":
		s.until(func() bool { _, err := os.Lstat(s.at(args[0])); return os.IsNotExist(err) })
	case "file":
		want := s.text(args[1:])
		s.until(func() bool { got, err := os.ReadFile(s.at(args[0])); return err == nil && string(got) == want })
	case "event":
		s.until(func() bool { return s.events(args[0], strings.Join(args[1:], " ")) > 0 })
	case "inbox":
		items, err := s.ledger.Inbox.List(s.t.Context())
		s.must(err)
		if want := strings.Join(args, " "); len(items) != 1 || !strings.Contains(items[0].Title+"\n"+items[0].Message, want) {
			s.fatal("the inbox: %+v", items)
		}
	case "state":
		s.until(func() bool { return s.status(args[0]).State == watcher.State(args[1]) })
	case "waits":
		path, why := s.at(args[1]), strings.Join(args[2:], " ")
		s.until(func() bool {
			return slices.ContainsFunc(s.status(args[0]).Waits, func(w settle.WaitingFile) bool { return w.Path == path && strings.Contains(w.Why, why) })
		})
	case "only":
		if runtime.GOOS != args[0] {
			s.t.Skipf("this is for %s", args[0])
		}
	default:
		s.files(words[0], args)
		if words[0] == "grow" {
			began = time.Now() // time of its last byte
		} else {
			s.inTime()
		}
		return
	}

	began = time.Time{}
}

// inTime ends the script if files that must arrive together do not.
func (s *script) inTime() {
	for _, w := range s.watches {
		if gap := time.Since(s.since); w.Mode == watcher.ModeBatch && s.halt != nil && !s.since.IsZero() && gap > w.Settle*2/3 && w.Settle >= 200*time.Millisecond {
			s.t.Skipf("line %d: this machine took %s for two files that come together", s.line, gap)
		}
	}
}

func (s *script) files(verb string, args []string) {
	path := s.at(args[0])
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))

	switch verb {
	case "write":
		s.put(path, s.text(args[1:]))
	case "open":
		f, err := os.Create(path)
		s.must(err)
		_, err = f.WriteString(s.text(args[1:]))
		s.must(err)
		s.t.Cleanup(func() { f.Close() })
		s.opened[path] = f
	case "close":
		s.must(s.opened[path].Close())
	case "append":
		s.add(path, s.text(args[1:]))
	case "grow":
		n, err := strconv.Atoi(args[1])
		s.must(err)
		pause, err := time.ParseDuration(args[2])
		s.must(err)
		s.grow(path, n, pause)
	case "store":
		s.store(path, s.text(args[1:]))
	case "mkdir":
		s.must(os.MkdirAll(path, 0o755))
	case "remove":
		s.must(os.RemoveAll(path))
	case "age", "touch":
		at := time.Now().Add(map[string]time.Duration{"age": -time.Hour, "touch": time.Hour}[verb])
		s.must(os.Chtimes(path, at, at))
	case "rename":
		s.must(os.MkdirAll(filepath.Dir(s.at(args[1])), 0o755))
		s.must(os.Rename(path, s.at(args[1])))
	case "copy":
		text, err := os.ReadFile(path)
		s.must(err)
		s.must(os.WriteFile(s.at(args[1]), text, 0o644))
	case "hardlink":
		s.must(os.Link(path, s.at(args[1])))
	case "link":
		s.must(os.MkdirAll(filepath.Dir(s.at(args[1])), 0o755))
		if err := os.Symlink(path, s.at(args[1])); err != nil && runtime.GOOS == "windows" {
			s.t.Skip("links cannot be made here")
		} else {
			s.must(err)
		}
	default:
		s.fatal("there is no command %s", verb)
	}
}

// put creates or changes a file atomically and with the current time. The result must not depend on
// the machine's speed between two writes.
func (s *script) put(path, text string) {
	whole := s.path("whole")
	s.must(os.WriteFile(whole, []byte(text), 0o644))
	if err := os.Link(whole, path); err == nil {
		s.must(os.Remove(whole))
	} else {
		s.must(os.Rename(whole, path))
	}
}

// grow appends bytes with pauses that are shorter than a settle window, if the machine allows it.
func (s *script) grow(path string, n int, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()

	for last := time.Now(); n > 0; n-- {
		s.add(path, "x")
		if gap := time.Since(last); gap > 300*time.Millisecond {
			s.t.Skipf("this machine paused for %s, which a file that grows must not", gap)
		}
		last = time.Now()
		<-ticker.C
	}
}

// store skips the script if a store does not change the file's time, because then it cannot be
// noticed.
func (s *script) store(path, text string) {
	before, err := os.Lstat(path)
	s.must(err)
	if err := store(path, text); errors.Is(err, errors.ErrUnsupported) {
		s.t.Skip("files cannot be stored to through memory here")
	} else {
		s.must(err)
	}

	after, err := os.Lstat(path)
	s.must(err)
	if after.ModTime().Equal(before.ModTime()) {
		s.t.Skip("this file system does not show when memory was stored to")
	}
}

func (s *script) add(path, text string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	s.must(err)
	_, err = f.WriteString(text)
	s.must(err)
	s.must(f.Close())
}

func (s *script) watch(args []string) {
	w := watcher.Watch{Job: args[0], Agent: "a", Path: s.path(args[1]), Settle: 60 * time.Millisecond}
	for _, option := range args[2:] {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "recursive":
			w.Recursive = true
		case "settle":
			d, err := time.ParseDuration(value)
			s.must(err)
			w.Settle = d
		case "include":
			w.Include = append(w.Include, value)
		case "exclude":
			w.Exclude = append(w.Exclude, value)
		case "existing":
			w.Existing = value
		case "mode":
			w.Mode = value
		case "takeopen":
			w.TakeOpen = true
		case "definition":
			w.Definition = value
		case "exact":
			w.ExactCase = true
		case "follow":
			w.FollowSymlinks = true
		case "maxwait":
			d, err := time.ParseDuration(value)
			s.must(err)
			w.MaxWait = d
		case "maxfiles":
			n, err := strconv.Atoi(value)
			s.must(err)
			w.MaxFiles = n
		case "within":
			w.Boundary = nofollow.NewBoundary(s.path(value))
		case "success":
			w.OnSuccess = s.after(value)
		case "failure":
			w.OnFailure = s.after(value)
		default:
			s.fatal("there is no option %s", key)
		}
	}

	if _, ok := s.watches[w.Job]; !ok {
		s.order = append(s.order, w.Job)
	}

	s.watches[w.Job] = w
}

func (s *script) after(value string) after.Rule {
	if value == "delete" {
		return after.Rule{Action: "delete"}
	}
	return after.Rule{Action: "move", Dir: s.path(value)}
}

func (s *script) all() []watcher.Watch {
	var out []watcher.Watch
	for _, job := range s.order {
		if w, ok := s.watches[job]; ok {
			out = append(out, w)
		}
	}
	return out
}

// runs waits for the runs of a job and compares them.
func (s *script) runs(job string, want []string, anyOrder bool) {
	for i, name := range want {
		want[i] = s.text([]string{name})
	}

	s.until(func() bool { return s.count(job) >= len(want)+s.seen[job] })
	got := s.names(job)
	if anyOrder {
		slices.Sort(got)
		slices.Sort(want)
	}

	if strings.Join(got, "|") != strings.Join(want, "|") {
		s.fatal("runs of %q, want %q", got, want)
	}
}

// quiet checks that no further runs come: it drops one more file, which must get the only new run.
func (s *script) quiet(job string) {
	s.seen[job]++
	before := s.count(job)
	name := fmt.Sprintf("last-of-all-%d.csv", s.seen[job])
	s.must(os.MkdirAll(s.watches[job].Path, 0o755))
	s.put(filepath.Join(s.watches[job].Path, name), name)
	taken := false
	s.until(func() bool {
		for _, r := range s.list(job) {
			taken = taken || label(r) == name || label(r) == "1:+"+name
		}
		return taken
	})

	if n := s.count(job); n != before+1 {
		s.fatal("%d more runs: %q", n-before-1, s.names(job))
	}
}

// names returns the files of a job's runs, without the files of quiet.
func (s *script) names(job string) []string {
	var out []string
	for _, d := range s.list(job) {
		if name := label(d); !strings.Contains(name, "last-of-all") {
			out = append(out, name)
		}
	}
	return out
}

// label returns a run in the notation of scripts.
func label(d ledger.TriggerDetail) string {
	if d.File != nil {
		return d.File.Name
	}

	var names []string
	for _, f := range d.Files {
		names = append(names, f.Name)
	}

	if d.Changes != nil {
		for sign, list := range map[string][]string{"+": d.Changes.Added, "-": d.Changes.Removed, "~": d.Changes.Modified} {
			for _, name := range list {
				names = append(names, sign+name)
			}
		}
		slices.Sort(names)
		names = []string{fmt.Sprintf("%d:%s", d.Round, strings.Join(names, ","))}
	}

	out := strings.Join(names, ",")
	if d.More > 0 {
		out += fmt.Sprintf("+%d", d.More)
	}

	return out
}

func (s *script) list(job string) []ledger.TriggerDetail {
	runs, err := s.ledger.Runs.List(s.t.Context(), runs.Filter{Job: job, Limit: 10_000})
	s.must(err)
	out := make([]ledger.TriggerDetail, len(runs))
	for i, r := range runs {
		s.must(json.Unmarshal(r.Detail, &out[len(runs)-1-i]))
	}
	return out
}

// run returns the run that a command names, or the latest run.
func (s *script) run(job string, named []string) int64 {
	if len(named) > 0 {
		id, err := strconv.ParseInt(named[0], 10, 64)
		s.must(err)
		return id
	}

	runs, err := s.ledger.Runs.List(s.t.Context(), runs.Filter{Job: job, Limit: 1})
	s.must(err)
	if len(runs) == 0 {
		s.fatal("no run of %s", job)
	}
	return runs[0].ID
}

func (s *script) events(kind, text string) int {
	events, err := s.ledger.Events.List(s.t.Context(), event.Filter{})
	s.must(err)
	n := 0
	for _, e := range events {
		if e.Kind == kind && strings.Contains(string(e.Data), text) {
			n++
		}
	}

	return n
}
