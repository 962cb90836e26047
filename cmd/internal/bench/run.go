package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// runSizes bound the measurement.
type runSizes struct {
	due    int // runs that are due at once
	single int // runs of each kind that come one at a time
}

func parseRunSizes(due, single string) (sizes runSizes, err error) {
	if sizes.due, err = strconv.Atoi(due); err != nil {
		return sizes, err
	}
	sizes.single, err = strconv.Atoi(single)
	return sizes, err
}

// runSample is what a daemon in a process of its own tells of its runs, one pass.
type runSample struct {
	Burst  runCost // all due at once, at 16 lanes
	Bare   float64 // runs a second of the queue alone: as many runs, with an executor that does nothing
	Single runCost // a list of one call that reads a line, one run at a time
	Model  runCost // a model with ten calls, one run at a time
}

// runCost is what a run costs, on average.
type runCost struct {
	Seconds float64 // all of them, from the first that is due to the last that is over
	Rate    float64 // 1/s
	CPU     float64 // ms; with whatever else the process does meanwhile
	Syncs   float64 // of all databases
	Written float64 // bytes, of all databases
	Kept    float64 // bytes that the ledger is larger
}

const (
	runLanes = 16
	runSteps = 10 // calls of a run with a model, each a step, and one more step that says it is done
)

func benchRun(ctx context.Context, o Options) ([]Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return measureRun(ctx, self, o.Progress, o.Passes, runSizes{due: 10_000, single: 200})
}

// measureRun has a daemon do runs of a whole: accepted or due, started, done by the agent loop, and on record.
func measureRun(ctx context.Context, self string, progress io.Writer, passes int, sizes runSizes) (_ []Figure, err error) {
	url, stop, err := startStubModel(ctx, self)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	var samples []runSample
	for pass := range passes {
		fmt.Fprintf(progress, "pass %d of %d\n", pass+1, passes)
		s, err := sampleRuns(ctx, self, url, sizes)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return runFigures(samples, sizes), nil
}

// sampleRuns is one pass, in a process whose use of the processor and the disk is that of the daemon alone.
func sampleRuns(ctx context.Context, self, url string, sizes runSizes) (s runSample, err error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // a folder behind a link is not the agent's own
		return s, err
	}

	child := exec.CommandContext(ctx, self, "bench", ChildVerb, "runs", dir, url, strconv.Itoa(sizes.due), strconv.Itoa(sizes.single))
	var complaints bytes.Buffer
	child.Stderr = &complaints
	out, err := child.Output()
	if err != nil {
		return s, fmt.Errorf("the daemon that is measured ended: %w: %s", err, complaints.String())
	}
	return s, json.Unmarshal(out, &s)
}

func runFigures(samples []runSample, sizes runSizes) []Figure {
	of := func(value func(runSample) float64) float64 {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = value(s)
		}
		return median(values)
	}

	atMost := func(name, unit string, value, most float64, goal string) Figure {
		return Figure{name, value, 0, unit, 0, goal, value <= most}
	}
	kib := func(bytes float64) float64 { return bytes / 1024 }

	rate, bare := of(func(s runSample) float64 { return s.Burst.Rate }), of(func(s runSample) float64 { return s.Bare })
	ratio := of(func(s runSample) float64 { return s.Burst.Rate / s.Bare })
	due := grouped(sizes.due) + " due at once"
	figures := []Figure{
		{due + ": runs of one call", rate, bare, "1/s, of an executor that does nothing", ratio, "≥ 1500/s", rate >= 1500},
		atMost(due+": until the last is over", "s", of(func(s runSample) float64 { return s.Burst.Seconds }), 8, "≤ 8 s"),
		atMost(due+": fsyncs of a run", "", of(func(s runSample) float64 { return s.Burst.Syncs }), 0, ""),
		atMost(due+": written for a run", "KiB", kib(of(func(s runSample) float64 { return s.Burst.Written })), 0, ""),
	}
	if cpuTime() > 0 { // a system that does not tell has no figure
		figures = append(figures, atMost(due+": CPU of a run", "ms", of(func(s runSample) float64 { return s.Burst.CPU }), 1, "≤ 1 ms"))
	}

	return append(figures,
		atMost("a run that reads a line, alone: fsyncs", "", of(func(s runSample) float64 { return s.Single.Syncs }), 3, "≤ 3"),
		atMost("a run that reads a line, alone: written", "KiB", kib(of(func(s runSample) float64 { return s.Single.Written })), 40, "≤ 40 KiB"),
		atMost("a run that reads a line, alone: kept", "KiB", kib(of(func(s runSample) float64 { return s.Single.Kept })), 1.5, "≤ 1.5 KiB"),
		atMost("a run of ten steps, alone: fsyncs", "", of(func(s runSample) float64 { return s.Model.Syncs }), 0, ""),
		atMost("a run of ten steps, alone: written", "KiB", kib(of(func(s runSample) float64 { return s.Model.Written })), 0, ""),
		atMost("a run of ten steps, alone: kept", "KiB", kib(of(func(s runSample) float64 { return s.Model.Kept })), 0, ""),
		atMost("a run of ten steps, alone: from asked for to over", "ms", of(func(s runSample) float64 { return 1000 / s.Model.Rate }), 0, ""),
	)
}
