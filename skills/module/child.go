package module

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"time"

	"modernc.org/quickjs"
)

// childName is the one argument of a process that runs or compiles a module.
const childName = "module-child"

// What compiling may take, of its process.
const (
	compileMemory = 512 << 20 // bytes
	compileStack  = 256 << 20 // bytes, of a goroutine
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
	debug.SetMaxStack(compileStack)
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
			if vm, err = newMachineVM(q.Start); err == nil {
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

// childLostError says that a child ended instead of answering.
type childLostError struct{ err error }

func (e *childLostError) Error() string { return fmt.Sprintf("its process ended: %v", e.err) }
func (e *childLostError) Unwrap() error { return e.err }

// compileInChild compiles in a process of its own, which is not confined: what it reads are texts that were read
// before, and esbuild is Go, which a hostile text can stop but not take over.
func compileInChild(ctx context.Context, src *sources) (_ *compiled, err error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}

	child := exec.CommandContext(ctx, self, childName)
	child.Dir, child.WaitDelay = os.TempDir(), time.Second
	child.Env = []string{"GOTRACEBACK=none", fmt.Sprintf("GOMEMLIMIT=%d", compileMemory/2)} // the daemon's own holds secrets
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	// An answer is all that is wanted of it.
	defer func() {
		_ = child.Process.Kill() // it has ended by itself, if not
		_ = child.Wait()
	}()

	r, err := exchange(in, bufio.NewReader(out), request{Compile: src})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, &childLostError{err}
	case r.Broken != "" || r.Compiled == nil:
		return nil, fmt.Errorf("its process failed: %s", r.Broken)
	}

	return r.Compiled, nil
}

// exchange sends the first request to a child, once it is ready, and returns its answer.
func exchange(in io.Writer, out io.Reader, q request) (reply, error) {
	var r reply
	if err := readFrame(out, maxReply, &r); err != nil {
		return r, err
	}
	if err := writeFrame(in, q, maxToChild); err != nil {
		return r, err
	}

	r = reply{}
	err := readFrame(out, maxReply, &r)
	return r, err
}

// executable is this binary, on Linux also where another one has its name by now.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
