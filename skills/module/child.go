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

// childName is the one argument of a process that runs or compiles a module.
const childName = "module-child"

// What a child may take. It is ended by its parent when it needs more than it is given in all.
const (
	childStack = 256 << 20 // bytes, of a goroutine
	childHeap  = 192 << 20 // bytes of Go's own, from which on garbage is collected all the time
)

// Child must be among the first that main does, and TestMain where a test compiles or runs modules. Where this
// process is one that does so it serves its parent and ends; else Child returns at once.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != childName {
		return
	}

	out := os.Stdout
	os.Stdout = os.Stderr // what a library prints is no message
	runtime.GOMAXPROCS(2) // the machine, and who collects its garbage
	debug.SetMaxStack(childStack)
	debug.SetMemoryLimit(childHeap)
	if err := serve(os.Stdin, out); err != nil {
		os.Exit(1) // who waits for an answer says so
	}
	os.Exit(0)
}

// serve answers requests until there are no more.
func serve(in io.Reader, out io.Writer) error {
	if err := writeFrame(out, reply{Ready: true}, MaxMessage); err != nil {
		return err
	}

	var vm *machineVM
	in = bufio.NewReader(in)
	// ask reports an event in the middle of a run, and returns what the parent answers to it.
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
				r.Event, err = &Event{End: endOf(err)}, nil // too little memory to begin with
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

// writeReply sends a reply. An event that is too large becomes the end of its module.
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
