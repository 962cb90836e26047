package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// draft holds a configuration and the entry to add.
type draft struct {
	at   *place
	path string
	old  []byte
	cfg  *config.Config // of old
	list string         // list of the entry: jobs or agents
	name func() string
	used map[string]config.Position // names in the list, in lower case

	// Of the last build.
	now      []byte
	line     int              // of the entry
	warnings []config.Problem // about the entry
	text     func() string    // of the entry
}

// begin reads the configuration. It returns a nil dialogue if flags are given or there is no terminal.
func (d *draft) begin(cmd *cobra.Command) (ask *dialogue, err error) {
	given := false
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		given = given || f.Changed
		if f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			err = usagef("--%s is empty", f.Name)
		}
	})
	if err == nil {
		err = d.read()
	}
	if err != nil || given {
		return nil, err
	}
	return dialogueOf(cmd), nil
}

func (d *draft) read() (err error) {
	if d.path, err = config.Find(d.at.config, os.Getenv); err != nil {
		return err
	}
	if info, err := os.Stat(d.path); err == nil && !info.Mode().IsRegular() {
		return usagef("%s is not a plain file", d.shown())
	}
	if d.old, err = os.ReadFile(d.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no configuration %s; write one with: rouse init", d.shown())
	} else if err != nil {
		return fmt.Errorf("the configuration cannot be read: %w", err)
	}
	if d.cfg, err = daemon.LoadText(d.path, d.at.home, d.old); err != nil {
		return fmt.Errorf("the configuration has mistakes; correct them first, nothing was written:\n%w", err)
	}

	d.used = map[string]config.Position{}
	if d.list == "agents" {
		for _, a := range d.cfg.Agents {
			d.used[strings.ToLower(string(a.Name))] = a.At
		}
		return nil
	}
	for _, j := range d.cfg.Jobs {
		d.used[strings.ToLower(string(j.Name))] = j.At
	}
	return nil
}

// fromFile converts a path of the command line to a path relative to the folder of the configuration.
func (d *draft) fromFile(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil || path == "" || path[0] == '~' {
		return path
	}
	if rel, ok := fspath.Rel(filepath.Dir(d.path), abs); ok {
		return "./" + filepath.ToSlash(rel)
	}
	return abs
}

// shown returns the path of the configuration for messages.
func (d *draft) shown() string {
	path := d.path
	if here, err := os.Getwd(); err == nil {
		path = fspath.Shorten(here, path)
	}
	return text.OneLine(path)
}

// here returns the --config flag for suggested commands, or "" if it was not given.
func (d *draft) here() string {
	if d.at.config == "" {
		return ""
	}
	return " --config " + text.OneLine(d.at.config)
}

// taken returns an error if the name exists in the list.
func (d *draft) taken() error {
	at, there := d.used[strings.ToLower(d.name())]
	if !there {
		return nil
	}
	p := config.Problem{File: at.File, Line: at.Line, Column: at.Column,
		Message: fmt.Sprintf("%s has an entry %q already; choose another name", d.list, d.name())}
	return usagef("%s", p)
}

// build adds the entry to the text, and checks the result.
func (d *draft) build() (err error) {
	if err := d.taken(); err != nil {
		return err
	}
	d.now, d.line, err = config.Add(d.old, d.list, d.text())
	if errors.Is(err, config.ErrStyle) {
		return fmt.Errorf("%s: the list %s uses a style that does not allow inserting lines, such as [{…}]; nothing was written. "+
			"Add this block by hand:\n\n%s", d.shown(), d.list, d.text())
	}
	if err != nil {
		return err
	}

	cfg, err := daemon.LoadText(d.path, d.at.home, d.now)
	var wrong *config.Errors
	if errors.As(err, &wrong) {
		var lines []string
		for _, p := range wrong.Problems {
			lines = append(lines, problemText(p))
		}
		return usagef("%s", strings.Join(lines, "\n  "))
	}
	if err != nil {
		return err
	}

	d.warnings = slices.DeleteFunc(cfg.Warnings, func(w config.Problem) bool {
		return !strings.HasPrefix(w.Path, d.list+"[") || w.Name != d.name()
	})
	return nil
}

// problemText names a problem by its key, because line numbers of the draft differ from those of the file.
func problemText(p config.Problem) string {
	_, key, _ := strings.Cut(p.Path, "].")
	said := text.OneLine(p.Message)
	if key != "" {
		said = key + ": " + said
	}
	if p.Hint != "" {
		said += "; " + text.OneLine(p.Hint)
	}
	return said
}

// write adds the entry to the file, prints it, and makes a running daemon reload.
func (d *draft) write(cmd *cobra.Command) error {
	if err := d.build(); err != nil {
		var wrong usageError
		if errors.As(err, &wrong) && d.taken() == nil {
			what := strings.TrimSuffix(d.list, "s")
			err = usagef("the %s cannot be added, nothing was written:\n  %w\n\nthe block was:\n\n%s", what, err, d.text())
		}
		return err
	}
	if err := replaceFile(d.path, d.old, d.now); err != nil {
		return err
	}

	fmt.Fprintf(cmd.OutOrStdout(), "added to %s, line %d:\n\n%s\n", d.shown(), d.line, d.text())
	for _, w := range d.warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "rouse: warning:", problemText(w))
	}
	return tellDaemon(cmd.Context(), cmd.OutOrStdout(), d.at)
}

// replaceFile replaces a file if it still holds old, and keeps its mode. If the path is a link, it replaces the target.
func replaceFile(path string, old, now []byte) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Lstat(real)
	if err != nil {
		return err
	}
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a plain file; nothing was written", text.OneLine(real))
	case !owner.Mine(info):
		return fmt.Errorf("%s %s; nothing was written", text.OneLine(real), owner.Whose(info))
	}
	current, err := os.ReadFile(real)
	if err != nil {
		return err
	}
	if !bytes.Equal(current, old) {
		return fmt.Errorf("%s was changed by another program meanwhile; nothing was written, try again", text.OneLine(real))
	}

	f, err := atomicfile.Create(real, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err = f.Write(now); err == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if err != nil {
		return errors.Join(err, f.Abort())
	}
	return f.Commit()
}

// dialogue asks the user for the values of flags.
type dialogue struct {
	ctx   context.Context
	lines chan string // closed at the end of the input
	out   io.Writer
}

// dialogueOf returns nil if there is no terminal to ask on.
func dialogueOf(cmd *cobra.Command) *dialogue {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) { //nolint:gosec // a descriptor fits
		return nil
	}
	d := &dialogue{cmd.Context(), make(chan string), cmd.ErrOrStderr()}
	go func() { // read in the background, so that Ctrl-C ends the wait
		defer close(d.lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			d.lines <- s.Text()
		}
	}()
	return d
}

// ask repeats a question until accept returns nil. An empty answer means the default.
func (d *dialogue) ask(question, def string, accept func(answer string) error) error {
	if def != "" {
		question += " [" + def + "]"
	}
	for {
		fmt.Fprint(d.out, question+": ")
		select {
		case line, ok := <-d.lines:
			if !ok {
				fmt.Fprintln(d.out)
				return errors.New("cancelled; nothing was written")
			}
			if line = strings.TrimSpace(line); line == "" {
				line = def
			}
			if line == "" {
				continue
			}
			err := accept(line)
			if err == nil {
				return nil
			}
			fmt.Fprintln(d.out, "  "+err.Error())
		case <-d.ctx.Done():
			fmt.Fprintln(d.out)
			return errors.New("cancelled; nothing was written")
		}
	}
}

// askInto asks for a value and checks the entry with it.
func (d *dialogue) askInto(question, def string, into *string, e *draft) error {
	return d.ask(question, def, func(answer string) error {
		*into = answer
		return e.build()
	})
}

// choose asks for one of several names.
func (d *dialogue) choose(question string, names []string, into *string) error {
	return d.ask(question+" ("+strings.Join(names, ", ")+")", names[0], func(answer string) error {
		if !slices.Contains(names, answer) {
			return errors.New(text.NoSuch("name", answer, names))
		}
		*into = answer
		return nil
	})
}

// confirm prints the entry and asks whether to write it.
func (d *dialogue) confirm(e *draft) (yes bool, err error) {
	fmt.Fprintf(d.out, "\n%s\n", e.text())
	err = d.ask("Add this to "+e.shown()+"?", "yes", func(answer string) error {
		switch strings.ToLower(answer) {
		case "y", "yes":
			yes = true
		case "n", "no":
		default:
			return errors.New("answer yes or no")
		}
		return nil
	})
	return yes, err
}
