package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// contractFiles hold the changes that some test of a contract has to notice, from the root of the repository.
const contractFiles = ".ci/mutate/contracts/*.yaml"

// broken is a change that breaks a contract in one place, which no change of an operator makes: a figure, an order,
// something left out.
type broken struct {
	Contract string `yaml:"contract"`
	How      string `yaml:"how"`
	File     string `yaml:"file"` // from the root of the repository
	From     string `yaml:"from"` // text that stands there once
	To       string `yaml:"to"`   // what takes its place
	Test     string `yaml:"test"` // that notices it: a test of the file's package, or of another one, as "cmd/rouse.TestX"
}

func (b broken) String() string { return fmt.Sprintf("%s %s: %s", b.Contract, b.File, b.How) }

// place is the package of the test, from the root of the repository, and its name.
func (b broken) place() (folder, test string) {
	if at := strings.LastIndex(b.Test, "."); at >= 0 {
		return b.Test[:at], b.Test[at+1:]
	}
	return filepath.Dir(b.File), b.Test
}

// readContracts reads the changes whose line in the report matches, those of a package's tests one after the other.
func readContracts(only *regexp.Regexp) ([]broken, error) {
	files, err := filepath.Glob(contractFiles)
	if err != nil {
		return nil, err
	}

	var all []broken
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var these []broken
		if err := yaml.Load(text, &these, yaml.WithKnownFields()); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, these...)
	}

	all = slices.DeleteFunc(all, func(b broken) bool { return !only.MatchString(b.String()) })
	slices.SortStableFunc(all, func(a, b broken) int {
		first, _ := a.place()
		second, _ := b.place()
		return strings.Compare(first, second)
	})
	return all, nil
}

// breakContracts tries the changes, and prints of each whether its test noticed it. It runs at the root of the repository.
func breakContracts(only *regexp.Regexp) (survived bool, err error) {
	changes, err := readContracts(only)
	if err != nil {
		return false, err
	}
	if len(changes) == 0 {
		return false, fmt.Errorf("no change in %s matches %q; a line of the report is like \"OSA-05 agent/loop/notices.go: advice stands before the budget\"", contractFiles, only)
	}

	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	var failures []error
	count := map[string]int{}
	judges := map[string]error{} // of tests: whether they pass without a change
	for _, c := range changes {
		folder, name := c.place()
		if _, known := judges[folder+"."+name]; !known {
			judges[folder+"."+name] = passes(work, folder, name)
		}
		if err := judges[folder+"."+name]; err != nil {
			failures = append(failures, fmt.Errorf("%s: %s of %s cannot judge: %w", c, name, folder, err))
			continue
		}

		noticed, err := c.try(work)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", c, err))
			continue
		}
		fate := "killed"
		if !noticed {
			fate, survived = "survived", true
		}
		count[fate]++
		fmt.Printf("%-9s %s (%s)\n", fate, c, c.Test)
	}

	fmt.Printf("contracts: %d killed, %d survived, %d could not be tried\n", count["killed"], count["survived"], len(failures))
	return survived, errors.Join(failures...)
}

// passes says why a test does not pass on the code as it is: it fails, is skipped, or does not exist.
func passes(work, folder, name string) error {
	binary := filepath.Join(work, strings.ReplaceAll(folder, "/", "_")+".test")
	if _, err := os.Stat(binary); err != nil {
		if err := compileTests(binary, folder, ""); err != nil {
			return err
		}
	}

	out, err := runTest(binary, folder, name)
	switch {
	case err != nil:
		return fmt.Errorf("it fails without the change: %w\n%s", err, out)
	case !bytes.Contains(out, []byte("--- PASS: "+name)):
		return fmt.Errorf("it does not exist or is skipped\n%s", out)
	}
	return nil
}

// try says whether the test fails with the change.
func (b broken) try(work string) (noticed bool, err error) {
	text, err := os.ReadFile(b.File)
	if err != nil {
		return false, err
	}
	if n := strings.Count(string(text), b.From); n != 1 {
		return false, fmt.Errorf("%q stands %d times in it", b.From, n)
	}

	file, err := filepath.Abs(b.File)
	if err != nil {
		return false, err
	}
	replaced := filepath.Join(work, "changed.go")
	if err := os.WriteFile(replaced, []byte(strings.Replace(string(text), b.From, b.To, 1)), 0o600); err != nil {
		return false, err
	}
	overlay, err := writeOverlay(work, map[string]string{file: replaced})
	if err != nil {
		return false, err
	}

	folder, name := b.place()
	binary := filepath.Join(work, "changed.test")
	if err := compileTests(binary, folder, overlay); err != nil {
		return false, err
	}
	_, failed := runTest(binary, folder, name)
	return failed != nil, nil
}

// compileTests compiles the tests of a package, with an overlay when there is one.
func compileTests(binary, folder, overlay string) error {
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o", binary, "./"+folder)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return nil
}

func runTest(binary, folder, name string) (out []byte, err error) {
	args := []string{"-test.v", "-test.run", "^" + name + "$", "-test.failfast", "-test.timeout", "5m"}
	run := exec.Command(binary, append(args, forgetful(binary)...)...)
	run.Dir = folder
	return run.CombinedOutput()
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
