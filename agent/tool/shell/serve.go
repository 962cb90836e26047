package shell

import (
	"context"
	"io"
	"os"
	"slices"

	"rouse/agent/sandbox"
)

// Exposure is the access of a service to the folders of a run.
type Exposure string

// The values of Exposure.
const (
	ExposeNothing Exposure = "none"
	ExposeReading Exposure = "read"  // reads the same folders as commands, and writes none of them
	ExposeWriting Exposure = "write" // reads and writes the same folders as commands
)

// Service is a program that serves for the duration of a run.
type Service struct {
	Argv           []string
	Env            []string // added to the default environment
	Read           []string // absolute paths in addition to those of the system
	Files          Exposure // empty means ExposeNothing
	Network        bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Serve runs a service, confined like a command, until it ends or ctx ends. It does not count for
// the limiter, because commands would otherwise wait until the run ends.
func (h *Launcher) Serve(ctx context.Context, s Service) (Ended, error) {
	own, places, err := h.makePlaces("server", homeFolder, tempFolder, "work")
	if err != nil {
		return Ended{}, err
	}
	home, temp, work := places[0], places[1], places[2]
	keep := false
	defer func() {
		if !keep {
			_ = os.RemoveAll(own) // remaining files are removed at the next start
		}
	}()

	c := sandbox.Command{
		Argv: s.Argv, Dir: work, Env: append(environment(home, temp), s.Env...), Read: s.Read, Write: slices.Clone(places), Temp: temp,
		Boundary: h.Roots.Boundary(), Network: s.Network, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, MinTier: h.MinTier,
	}
	if s.Files == ExposeReading || s.Files == ExposeWriting {
		read, write := h.Roots.ProgramPaths(s.Argv)
		c.Dir, c.Masked = h.Roots.Workdir(), h.Roots.ProgramMasks()
		c.Read, c.Write = append(append([]string{}, s.Read...), read...), append(c.Write, write...)
		if s.Files == ExposeReading {
			c.Read, c.Write = append(c.Read, write...), places
		}
	}
	if err := h.hide(&c, s.Read, nil); err != nil {
		return Ended{}, &sandbox.StartError{Argv0: s.Argv[0], Err: err}
	}
	if s.Files != ExposeWriting {
		res, err := h.Sandbox.Run(ctx, c)
		return Ended{Result: res}, err
	}

	ended, err := h.runGuarded(ctx, c, Program{Argv: s.Argv}, own)
	keep = ended.Unkept != nil
	return ended, err
}
