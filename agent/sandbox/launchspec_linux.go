//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// supervisorArg is the only argument of a supervisor.
const supervisorArg = "sandbox-supervisor"

// The files that a supervisor inherits, after the three standard streams of its command.
const (
	selfFD       = 3 + iota // this binary, even when its path is gone or belongs to another file by now
	launchSpecFD            // a launchSpec, to read
	reportFD                // reports, to write
	controlFD               // a byte asks the command to end; end of file kills everything
	bwrapFD                 // the arguments of bubblewrap, which it reads
)

// launchSpec tells a supervisor what to start, and how.
type launchSpec struct {
	Tier    Tier
	Argv    []string
	Env     []string
	Dir     string
	Temp    string // a folder for temporary files, removed afterwards
	Network bool
	Rules   []rule // of Landlock, with paths as the supervisor sees them
	Limits  Limits
	Threads uint64   // that the user of the command may have in all, those of other programs included
	Canary  []string // files that the command must not be able to read; for trial starts
}

// report is what a supervisor sends: an empty one when everything is in place and the command is about to
// start, and one about its end, or why it could not be started.
type report struct {
	Ended  bool   `json:",omitempty"` // this is the last report: how the command ended
	Failed string `json:",omitempty"` // why it could not be started
	Errno  int    `json:",omitempty"` // the errno behind it, if there is one
	Exit   int    `json:",omitempty"`
	Signal int    `json:",omitempty"`
	CPU    int64  `json:",omitempty"` // ns
	MaxRSS int64  `json:",omitempty"` // bytes, of the largest process
}

// newMemfd is an anonymous file in memory with the given content, for a child to read. A pipe would block
// when the content is larger than its buffer.
func newMemfd(name string, write func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}

	f := os.NewFile(uintptr(fd), name)
	err = write(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

func (s launchSpec) memfd() (*os.File, error) {
	return newMemfd("launch-spec", func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}
