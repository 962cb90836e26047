package module

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"modernc.org/quickjs"
)

// childName is the only argument of a process that runs or compiles a module.
const childName = "module-child"

// Memory limits of a child. The parent kills it if it exceeds its total limit.
const (
	childStack = 256 << 20 // bytes of stack per goroutine
	childHeap  = 192 << 20 // soft limit of the Go heap in bytes
)

// Child serves the parent and exits if this process is a module process. Otherwise it returns
// immediately. It must be called at the beginning of main, and of TestMain if tests compile or run
// modules.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != childName {
		return
	}

	out := os.Stdout
	os.Stdout = os.Stderr // output of libraries must not corrupt messages
	runtime.GOMAXPROCS(2) // one for the VM, one for garbage collection
	debug.SetMaxStack(childStack)
	debug.SetMemoryLimit(childHeap)
	if err := serve(os.Stdin, out); err != nil {
		os.Exit(1) // the parent reports the lost child
	}
	os.Exit(0)
}

// serve answers requests until the end of input.
func serve(in io.Reader, out io.Writer) error {
	if err := writeFrame(out, reply{Ready: true}, MaxMessage); err != nil {
		return err
	}

	var vm *machineVM
	in = bufio.NewReader(in)
	// ask sends an event in the middle of a run and returns the parent's answers.
	ask := func(e *Event) ([]answerMessage, error) {
		if err := writeReply(out, reply{Event: e}); err != nil {
			return nil, err
		}
		var q request
		if err := readFrame(in, maxToChild, &q); err != nil {
			return nil, err
		}
		if q.Next == nil {
			return nil, errors.New("it was asked for nothing that it can do now")
		}
		return q.Next.Answers, nil
	}
	for {
		var q request
		if err := readFrame(in, maxToChild, &q); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}

		r := reply{}
		var err error
		switch {
		case q.Compile != nil:
			r.Compiled, err = build(q.Compile)
		case q.Start != nil && vm == nil:
			var engine *quickjs.Error
			debug.SetMemoryLimit(childHeap + wasmHeap(q.Start))
			if vm, err = newMachineVM(q.Start, ask); err == nil {
				r.Event = vm.begin()
			} else if errors.As(err, &engine) {
				r.Event, err = &Event{End: endOf(err)}, nil // too little memory to start
			}
		case q.Next != nil && vm != nil:
			r.Event = vm.next(q.Next.Answers)
		default:
			err = errors.New("it was asked for nothing that it can do now")
		}
		if err != nil {
			r = reply{Broken: err.Error()}
		}

		if err := writeReply(out, r); err != nil {
			return err
		}
	}
}

// writeReply sends a reply. If an event is too large, the module ends with an error instead.
func writeReply(out io.Writer, r reply) error {
	err := writeFrame(out, r, maxReply)
	if errors.Is(err, errTooLarge) {
		return writeFrame(out, reply{Event: &Event{End: tooLargeEnd()}}, maxReply)
	}
	return err
}

func tooLargeEnd() *End {
	return &End{Status: Threw, Error: fmt.Sprintf("RangeError: what the module sends or returns at a time comes to over %d MiB; pass it in parts, or as a file", MaxMessage>>20)}
}
