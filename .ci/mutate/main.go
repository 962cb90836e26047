// Command mutate tells what the tests of a package do not notice: it changes one operator of its code at a time, as
// gremlins does, and runs the package's own tests.
//
//	go run ./.ci/mutate [-only REGEXP] [-skip REGEXP] [-run REGEXP] [-quick DURATION] [-with PACKAGES] PACKAGE [FILE...]
//	go run ./.ci/mutate -contracts [-only REGEXP]
//
// With -contracts it makes the changes of .ci/mutate/contracts, each of which breaks a contract in a way that no operator
// does, and runs the test that the contract names. Each is compiled by itself.
//
// All mutants are compiled into one test binary, each behind a switch that its environment sets, for compiling one
// at a time takes most of a mutation tester's day. Every test is run once alone to learn which mutants it reaches,
// and a mutant is tried by the tests that reach it alone, the quickest first, until one fails; -with adds those of
// other packages, which come after its own. It ends with 1 when a mutant that a test reaches survives all of them.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// switchVariable chooses the mutant that a test binary runs with, reachedVariable the file that is told of each one
// that it comes to.
const (
	switchVariable  = "ROUSE_MUTANT"
	reachedVariable = "ROUSE_MUTANTS_REACHED"
)

// options are what the command line says.
type options struct {
	pkg   string
	files []string       // names within the package; none means all
	only  *regexp.Regexp // of a mutant's text, as "authorize.go:39:30 && to ||"
	skip  *regexp.Regexp // of a test's name
	run   *regexp.Regexp
	with  []string      // packages whose tests are used as well
	quick time.Duration // tests that take longer are left out; 0: none is

	parallel int // how many mutants are tried at a time
}

func main() {
	only := flag.String("only", "", "try only the mutants, or the changes, whose line in the report matches")
	skip := flag.String("skip", "^$", "leave out the tests whose name matches")
	run := flag.String("run", "", "use only the tests whose name matches")
	with := flag.String("with", "", "use the tests of these packages as well, with commas between them")
	quick := flag.Duration("quick", 0, "leave out the tests that take longer than this; 0 takes all")
	parallel := flag.Int("parallel", runtime.NumCPU(), "try this many mutants at a time")
	broken := flag.Bool("contracts", false, "try the changes that break contracts")
	flag.Parse()
	if (flag.NArg() == 0) != *broken {
		flag.Usage()
		os.Exit(2)
	}

	var survived bool
	var err error
	if *broken {
		survived, err = breakContracts(regexp.MustCompile(*only))
	} else {
		survived, err = mutate(options{
			pkg: flag.Arg(0), files: flag.Args()[1:],
			only: regexp.MustCompile(*only), skip: regexp.MustCompile(*skip), run: regexp.MustCompile(*run),
			with: strings.FieldsFunc(*with, func(r rune) bool { return r == ',' }), quick: *quick, parallel: max(*parallel, 1),
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if survived {
		os.Exit(1)
	}
}

// mutate tries the mutants of a package, and prints one line for each that is not killed.
func mutate(o options) (survived bool, err error) {
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)

	p, err := load(o.pkg)
	if err != nil {
		return false, err
	}

	mutants, overlay, err := p.switched(o.files, work)
	if err != nil {
		return false, err
	}

	var tests []test
	for i, pkg := range append([]string{o.pkg}, o.with...) {
		t, err := newTester(pkg, overlay, filepath.Join(work, strconv.Itoa(i)))
		if err != nil {
			return false, err
		}
		its, err := t.tests(o)
		if err != nil {
			return false, err
		}
		tests = append(tests, its...)
	}

	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !o.only.MatchString(m.String()) })
	if len(mutants) == 0 {
		return false, fmt.Errorf("no mutant of %s matches %q; a line of the report is like \"budget.go:44:20 += to -=\"", o.pkg, o.only)
	}

	count := tryAll(mutants, tests, o.parallel)
	fmt.Printf("%s: %d killed, %d timed out, %d survived, %d not reached\n",
		o.pkg, count["killed"], count["timed out"], count["survived"], count["not reached"])
	return count["survived"] > 0, nil
}

// tryAll tries mutants, so many at a time, prints one line for each that is not killed, in their order, and counts their fates.
func tryAll(mutants []mutant, tests []test, parallel int) (count map[string]int) {
	fates := make([]chan string, len(mutants))
	for i := range fates {
		fates[i] = make(chan string, 1)
	}

	var wg sync.WaitGroup
	next := make(chan int)
	for range parallel {
		wg.Go(func() {
			for i := range next {
				fates[i] <- try(mutants[i], tests)
			}
		})
	}
	wg.Go(func() {
		defer close(next)
		for i := range mutants {
			next <- i
		}
	})

	count = map[string]int{}
	for i, m := range mutants {
		fate := <-fates[i]
		count[fate]++
		if fate != "killed" {
			fmt.Printf("%-12s %s\n", fate, m)
		}
	}
	wg.Wait()
	return count
}

// tester runs the test binary of a package, in which every mutant sleeps.
type tester struct {
	binary, folder, work string
	flags                []string // of all runs of the binary
}

// newTester compiles the tests of a package with the mutants of the overlay.
func newTester(pkg, overlay, work string) (tester, error) {
	t := tester{binary: filepath.Join(work, "test"), work: work}
	if err := os.Mkdir(work, 0o700); err != nil {
		return t, err
	}

	where := exec.Command("go", "list", "-f", "{{ .Dir }}", pkg)
	where.Stderr = os.Stderr
	dir, err := where.Output()
	if err != nil {
		return t, fmt.Errorf("go list %s: %w", pkg, err)
	}
	t.folder = strings.TrimSpace(string(dir))

	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", t.binary, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return t, fmt.Errorf("the tests of %s do not compile with the mutants: %w\n%s", pkg, err, out)
	}

	t.flags = forgetful(t.binary)
	return t, nil
}

// forgetful is the flag with which the property tests of a binary, when there are any, do not keep the inputs that fail: later runs
// without a mutant would try them.
func forgetful(binary string) []string {
	const flag = "-rapid.nofailfile"
	if exec.Command(binary, "-test.list", "^$", flag).Run() != nil {
		return nil
	}
	return []string{flag}
}

// test is one test with what it takes, and the mutants that it comes to.
type test struct {
	of      tester
	name    string
	took    time.Duration
	reaches map[int]bool
}

// tests runs each test of the binary alone without a mutant, and returns them with the quickest first. One that
// fails like that cannot judge, and is told and left out.
func (t tester) tests(o options) ([]test, error) {
	list := exec.Command(t.binary, "-test.list", ".")
	list.Dir = t.folder
	out, err := list.Output()
	if err != nil {
		return nil, err
	}

	var tests []test
	for _, name := range strings.Fields(string(out)) {
		known := strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
		if !known || o.skip.MatchString(name) || !o.run.MatchString(name) {
			continue
		}

		reached := filepath.Join(t.work, "reached")
		began := time.Now()
		if err := t.runs(name, 10*time.Minute, reachedVariable+"="+reached); err != nil {
			fmt.Printf("%-12s %s fails without a mutant when it runs alone, and is left out\n", "unusable", name)
			continue
		}

		x := test{of: t, name: name, took: time.Since(began), reaches: map[int]bool{}}
		if o.quick > 0 && x.took > o.quick {
			fmt.Printf("%-12s %s takes %s, and is left out\n", "slow", name, x.took.Round(time.Millisecond))
			os.Remove(reached)
			continue
		}
		text, _ := os.ReadFile(reached) // a test that reaches no mutant writes none
		for _, id := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(id)
			if err != nil {
				return nil, err
			}
			x.reaches[n] = true
		}
		os.Remove(reached)
		tests = append(tests, x)
	}

	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	return tests, nil
}

// try returns the fate of a mutant: killed, timed out, survived or not reached.
func try(m mutant, tests []test) string {
	fate := "not reached"
	for _, x := range tests {
		if !x.reaches[m.id] {
			continue
		}

		// A machine that is busy with other things may be several times as slow as it was a minute ago.
		err := x.of.runs(x.name, 20*time.Second+10*x.took, switchVariable+"="+strconv.Itoa(m.id))
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return "timed out"
		case err != nil:
			return "killed"
		}
		fate = "survived"
	}
	return fate
}

// runs runs one test with a variable in its environment.
func (t tester) runs(test string, limit time.Duration, variable string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	run := exec.CommandContext(ctx, t.binary, append([]string{"-test.run", "^" + test + "$", "-test.failfast"}, t.flags...)...)
	run.Dir, run.Env = t.folder, append(os.Environ(), variable)
	run.WaitDelay = time.Second
	err := run.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// listed is what `go list` says of the package.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
	exports                       map[string]string // the compiled form of what it imports, by path
}

// load finds the package's files, and the types of what it imports.
func load(pkg string) (listed, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles", pkg)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return listed{}, fmt.Errorf("go list %s: %w", pkg, err)
	}

	exports := map[string]string{}
	var p listed
	for in := json.NewDecoder(strings.NewReader(string(out))); in.More(); {
		p = listed{} // the package itself comes last
		if err := in.Decode(&p); err != nil {
			return listed{}, err
		}
		exports[p.ImportPath] = p.Export
	}
	p.exports = exports
	return p, nil
}
