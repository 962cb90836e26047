package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"rouse/agent/sandbox"
)

// Exposure is what a program that serves sees of the folders of a run.
type Exposure string

// The exposures.
const (
	ExposeNothing Exposure = "none"
	ExposeReading Exposure = "read"  // as its commands read them, and nothing of them can be changed
	ExposeWriting Exposure = "write" // as its commands read and change them
)

// Service is a program that serves while a run is on.
type Service struct {
	Argv           []string
	Env            []string // in addition to what every command is given
	Read           []string // absolute paths in addition to those of the system
	Files          Exposure // "" is ExposeNothing
	Network        bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Serve runs a program that serves, confined as commands are, until it ends or ctx does. It takes no lane of the commands: they would
// wait for it as long as its run is on. Its HOME and its temporary places are gone afterwards.
func (h *Launcher) Serve(ctx context.Context, s Service) (Ended, error) {
	own, err := h.MkdirTemp("server")
	if err != nil {
		return Ended{}, fmt.Errorf("a program that serves needs a temporary folder: %w", err)
	}
	keep := false
	defer func() {
		if !keep {
			_ = os.RemoveAll(own) // what is left of it is removed at the next start
		}
	}()

	home, temp, work := filepath.Join(own, homeFolder), filepath.Join(own, tempFolder), filepath.Join(own, "work")
	if err := errors.Join(os.Mkdir(home, 0o700), os.Mkdir(temp, 0o700), os.Mkdir(work, 0o700)); err != nil {
		return Ended{}, fmt.Errorf("a program that serves needs a temporary folder: %w", err)
	}

	c := sandbox.Command{
		Argv: s.Argv, Dir: work, Env: append(environment(home, temp), s.Env...), Read: s.Read, Write: []string{home, temp, work}, Temp: temp,
		Boundary: h.Roots.Boundary(), Network: s.Network, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, MinTier: h.MinTier,
	}
	if s.Files == ExposeReading || s.Files == ExposeWriting {
		read, write := h.Roots.ProgramPaths(s.Argv)
		c.Dir, c.Masked = h.Roots.Workdir(), h.Roots.ProgramMasks()
		c.Read, c.Write = append(append([]string{}, s.Read...), read...), append(c.Write, write...)
		if s.Files == ExposeReading {
			c.Read, c.Write = append(c.Read, write...), []string{home, temp, work}
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
