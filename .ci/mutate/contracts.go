package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// broken is a change that breaks a contract in one place, which no change of an operator makes: a figure, an order, something left out.
type broken struct {
	contract, how string
	file          string // from the root of the repository
	from, to      string // text that stands there once, and what takes its place
	tests         string // of the file's package, as -run takes them
}

// contracts are changes that some test of the contract has to notice.
var contracts = []broken{
	{"OSA-05", "notices that were added stand before those of the host", "agent/loop/notices.go",
		"r.staged = append(first, r.staged...)", "r.staged = append(r.staged, first...)", "."},
	{"OSA-05", "advice stands before the budget", "agent/loop/notices.go",
		`add("%s", r.advice)`, `first = append([]string{noticePrefix + r.advice}, first...)`, "."},
	{"OSA-13", "an error is held when its path has appeared", "agent/loop/bookkeeping.go",
		"holdsErrors(t.Class()) && f.pathState == t.StatKey(c.Args)", "holdsErrors(t.Class())", "."},
	{"OSA-21", "0.85 to 0.95", "agent/loop/window.go", "size * 85 / 100", "size * 95 / 100", "."},
	{"OSA-21", "128k to 64k", "agent/loop/window.go", "DefaultWindow = 128_000", "DefaultWindow = 64_000", "."},
	{"OSA-22", "the last 3 turns to 2", "agent/loop/window.go", "keptTurns       = 3", "keptTurns       = 2", "."},
	{"OSA-23", "bulk moves that failed are free", "agent/loop/batch.go", "|| !envelopes[i].OK ", "", "."},
	{"OSA-24", "8 steps to 12", "agent/loop/reduce.go", "defaultReduceSteps = 8", "defaultReduceSteps = 12", "."},
	{"OSA-24", "at most 12 to 20", "agent/loop/reduce.go", "maxReduceSteps     = 12", "maxReduceSteps     = 20", "."},
	{"OSA-62", "80 % to 99 %", "agentdb/quota.go", "used >= q.limit/5*4", "used >= q.limit/100*99", "Quota"},
	{"OSA-63", "the views of a wake are dropped", "agent/prompt_views.go",
		"names = append(names, t.detail.Wake.ContextViews...)", "_ = t.detail.Wake.ContextViews", "Wake|Views"},
	{"OSA-40", "an isolated agent is not told of the folder that it reads", "agent/prompt_folder.go",
		"cmp.Or(t.agent.HostFolder, t.agent.Workdir)", "cmp.Or(t.agent.Workdir)", "Isolated"},
	{"OSA-40", "a job loosens the confinement of an isolated agent", "agent/task.go", `t.agent.Mode == ModeIsolated && least > "B"`, "false", "Isolated"},
	{"OSA-40", "an agent without a host has the tools of one", "agent/tool_families.go",
		"f.tools == nil || f.onHost && t.agent.Mode == ModeNone", "f.tools == nil", "NoHost"},
	{"OSA-40", "an isolated agent works in its workdir", "cmd/internal/config/mode.go", `a.Workdir = ""`, "_ = own", "Modes"},
	{"OSA-40", "a soul is as long as it likes", "cmd/internal/config/mode.go", "len(a.Soul) > maxSoul", "false", "Soul"},
}

// breakContracts tries each of the changes, and prints whether a test noticed it. It runs at the root of the repository.
func breakContracts() (survived bool, err error) {
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	for _, c := range contracts {
		noticed, err := c.try(work)
		if err != nil {
			return false, fmt.Errorf("%s, %s: %w", c.contract, c.how, err)
		}
		fate := "killed"
		if !noticed {
			fate, survived = "survived", true
		}
		fmt.Printf("%-12s %s %s: %s\n", fate, c.contract, c.file, c.how)
	}
	return survived, nil
}

// try says whether a test fails with the change.
func (c broken) try(work string) (noticed bool, err error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return false, err
	}
	if n := strings.Count(string(text), c.from); n != 1 {
		return false, fmt.Errorf("%q stands %d times in %s", c.from, n, c.file)
	}

	file, err := filepath.Abs(c.file)
	if err != nil {
		return false, err
	}
	replaced := filepath.Join(work, "changed.go")
	if err := os.WriteFile(replaced, []byte(strings.Replace(string(text), c.from, c.to, 1)), 0o600); err != nil {
		return false, err
	}
	overlay, err := writeOverlay(work, map[string]string{file: replaced})
	if err != nil {
		return false, err
	}

	binary := filepath.Join(work, "test")
	folder := filepath.Dir(c.file)
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+folder)
	if out, err := build.CombinedOutput(); err != nil {
		return false, fmt.Errorf("it does not compile: %w\n%s", err, out)
	}

	run := exec.Command(binary, "-test.run", c.tests, "-test.failfast")
	run.Dir = folder
	return run.Run() != nil, nil
}

// writeOverlay writes the file that puts some files in the place of others, for go's -overlay.
func writeOverlay(work string, replace map[string]string) (path string, err error) {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(work, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
