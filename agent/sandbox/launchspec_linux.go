//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// supervisorArg is the one argument of a keeper.
const supervisorArg = "sandbox-supervisor"

// The files that a keeper begins with, beside the three of its command.
const (
	selfFD       = 3 + iota // this binary, also where its path is gone or is another one by now
	launchSpecFD            // a stage, to read
	reportFD                // a report, to write
	controlFD               // a byte asks the command to end, the end of it ends everything
	bwrapFD                 // the arguments of bubblewrap, which it reads
)

// launchSpec is what a keeper is told.
type launchSpec struct {
	Tier    Tier
	Argv    []string
	Env     []string
	Dir     string
	Temp    string // a folder for temporary files, which is taken away afterwards
	Network bool
	Rules   []rule // of Landlock, in the folders as the keeper sees them
	Limits  Limits
	Threads uint64   // that the user of the command may have, this command's and all others
	Canary  []string // files that the command must not be able to read, for a trial
}

// report is what a keeper tells. The first line comes before the command is started.
type report struct {
	Ended  bool   `json:",omitempty"` // the last line: how the command ended
	Failed string `json:",omitempty"` // why it could not be started
	Errno  int    `json:",omitempty"` // the system's reason, when that is one
	Exit   int    `json:",omitempty"`
	Signal int    `json:",omitempty"`
	CPU    int64  `json:",omitempty"` // ns
	MaxRSS int64  `json:",omitempty"` // bytes, of the largest process
}

// newMemfd is a file without a name, which a child can read.
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
	return newMemfd("stage", func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}
