package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/imports"
	"rouse/cmd/internal/plan"
	"rouse/internal/atomicfile"
	"rouse/internal/text"
)

// importer holds the flags that all formats share.
type importer struct {
	at     *cli
	output string
	users  bool
}

func newImport(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Writes the jobs of another scheduler as a configuration",
		Long: `Writes the jobs of another scheduler as a configuration, on standard output or to a file.
What could not be carried over stands in a comment at its job, and a job that lacks something
that matters is off. The file is read and never executed; nothing that it names is read.`,
	}

	i := &importer{at: env}
	cmd.PersistentFlags().StringVarP(&i.output, "output", "o", "", "write to this `file`, which must not be there yet")
	crontab := i.format("crontab FILE...", "A crontab of a user (crontab -l), of the system (/etc/crontab, /etc/cron.d), or - for what comes in", nil,
		func(files []imports.File, _ []string) (*imports.Document, error) {
			return imports.Crontab(files, imports.CrontabOptions{Users: i.users}), nil
		})
	crontab.Flags().BoolVar(&i.users, "system", false, "a user stands before each command, as in /etc/crontab; found out without it where the file says so")
	crontab.Example = "  crontab -l | rouse import crontab - --output rouse.yaml"

	cmd.AddCommand(crontab,
		i.format("systemd FILE|FOLDER...", "Timers of systemd with the services that they start", []string{".timer", ".service"}, systemdUnits),
		i.format("dagu FILE|FOLDER...", "DAGs of Dagu", []string{".yaml", ".yml"}, func(files []imports.File, _ []string) (*imports.Document, error) { return imports.Dagu(files) }),
		i.format("openclaw FILE...", "Cron jobs of OpenClaw (~/.openclaw/cron/jobs.json), or a HEARTBEAT.md", nil,
			func(files []imports.File, _ []string) (*imports.Document, error) { return imports.OpenClaw(files) }),
	)
	return cmd
}

// systemdUnits reads timers. For a timer that is named alone, it also reads the service next to it.
func systemdUnits(files []imports.File, named []string) (*imports.Document, error) {
	for _, name := range named {
		base, isTimer := strings.CutSuffix(filepath.Base(name), ".timer")
		if !isTimer {
			continue
		}
		beside, err := imports.ReadBeside(name, base+".service", templateOf(base))
		if err != nil {
			return nil, err
		}
		for _, f := range beside {
			if !slices.ContainsFunc(files, func(one imports.File) bool { return filepath.Base(one.Name) == f.Name }) {
				files = append(files, f)
			}
		}
	}

	o := imports.SystemdOptions{}
	if me, err := user.Current(); err == nil {
		o.Home, o.User = me.HomeDir, me.Username
	}
	return imports.Systemd(files, o), nil
}

// templateOf returns the file name of an instance's template: a@.service for a@b.
func templateOf(name string) string {
	base, _, _ := strings.Cut(name, "@")
	return base + "@.service"
}

// format returns the command for one format. endings are the file name endings it reads from a
// folder. Without endings, the command does not accept folders.
func (i *importer) format(use, short string, endings []string, read func(files []imports.File, named []string) (*imports.Document, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			files, skipped, err := readNamed(args, endings, cmd.InOrStdin())
			if err != nil {
				return err
			}
			d, err := read(files, args)
			if err != nil {
				return err
			}
			return i.write(cmd, d, skipped)
		},
	}
}

// readNamed reads files and folders. It also returns the files of a folder that it skipped.
func readNamed(names, endings []string, in io.Reader) (files []imports.File, skipped []string, err error) {
	for _, name := range names {
		if s, err := os.Stat(name); err == nil && s.IsDir() && name != "-" {
			if len(endings) == 0 {
				return nil, nil, usagef("%s is a folder; name its file", text.OneLine(name))
			}
			found, others, err := imports.ReadFolder(name, endings...)
			if err != nil {
				return nil, nil, err
			}
			files, skipped = append(files, found...), append(skipped, others...)
			continue
		}

		one, err := imports.ReadFile(name, in)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, one)
	}
	return files, skipped, nil
}

// write prints the configuration or writes it to a new file, and reports the result for each job.
func (i *importer) write(cmd *cobra.Command, d *imports.Document, skipped []string) error {
	path := i.output
	if path == "" {
		path = "rouse.yaml" // the usual place of the file
	} else if _, err := os.Lstat(path); err == nil {
		return usagef("%s is there already, and is not written over", text.OneLine(path))
	}
	content, err := d.Settle(func(content []byte) ([]imports.Problem, error) { return i.check(path, content) })
	if err != nil {
		return err
	}

	write := func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
	if i.output == "" {
		err = write(cmd.OutOrStdout())
	} else if err = atomicfile.StreamNew(path, 0o644, write); errors.Is(err, fs.ErrExist) {
		return usagef("%s is there already, and is not written over", text.OneLine(path))
	}
	if err != nil {
		return err
	}

	i.summarize(cmd.ErrOrStderr(), d, skipped)
	if len(d.Jobs()) == 0 {
		return errSilent
	}
	return nil
}

// check checks a configuration in the same way as rouse config check.
func (i *importer) check(path string, content []byte) ([]imports.Problem, error) {
	_, err := plan.LoadText(path, i.at.home, content)
	var wrong *config.Errors
	if err == nil || !errors.As(err, &wrong) {
		return nil, err
	}

	var out []imports.Problem
	for _, p := range wrong.Problems {
		if !p.Warning {
			out = append(out, imports.Problem{Path: p.Path, Message: p.Message})
		}
	}
	return out, nil
}

func (i *importer) summarize(w io.Writer, d *imports.Document, skipped []string) {
	remarks, off := 0, 0
	for _, j := range d.Jobs() {
		if len(j.Remarks) > 0 {
			remarks++
		}
		if j.Off {
			off++
		}
	}

	fmt.Fprintf(w, "%s carried over, %d with remarks, %d of them off until you have looked", text.Plural(len(d.Jobs()), "job"), remarks, off)
	if n := d.Comments(); n > 0 {
		fmt.Fprintf(w, "; %d could not be, and stand in comments", n)
	}
	fmt.Fprintln(w)
	if len(skipped) > 0 {
		fmt.Fprintf(w, "not read: %s\n", text.OneLine(text.List(skipped, 10)))
	}
	if i.output != "" && len(d.Jobs()) > 0 {
		fmt.Fprintf(w, "next: rouse config check --config %s\n", text.OneLine(i.output))
	}
}
