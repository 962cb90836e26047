package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rouse/internal/text"
)

// argumentWord is an argument in the Use of a command: RUN, [TOOL…], DIR|FILE.
var argumentWord = regexp.MustCompile(`^(\[?)([A-Z]+(?:\|[A-Z]+)*)(…?)\]?$`)

// argument is a positional argument of a command, as its Use names it.
type argument struct {
	name     string // JOB, DIR|FILE
	optional bool
	repeats  bool
}

// argumentsOf are the positional arguments that the Use of a command names: "call AGENT TOOL [JSON]". Of several ways to use it the first
// counts; the values of flags are not among them.
func argumentsOf(cmd *cobra.Command) (out []argument) {
	use, _, _ := strings.Cut(cmd.Use, " | ")
	for i, word := range strings.Fields(use) {
		m := argumentWord.FindStringSubmatch(word)
		if i == 0 {
			continue
		}
		if m == nil {
			break
		}
		out = append(out, argument{m[2], m[1] != "", m[3] != ""})
	}
	return out
}

// sayUsage has all commands say what is wrong with a command line in terms of the arguments and flags that they have.
func sayUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(flagError)
	eachCommand(root, func(cmd *cobra.Command) {
		check := cmd.Args
		if check == nil {
			return
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			var own usageError
			if err == nil || errors.As(err, &own) { // which a command words itself
				return err
			}
			return argumentError(cmd, args, err)
		}
	})
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		eachCommand(c, do)
	}
}

// argumentError names the argument that is missing, or the one that is too many.
func argumentError(cmd *cobra.Command, args []string, err error) error {
	if cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}

	wanted := argumentsOf(cmd)
	for i, a := range wanted {
		if i >= len(args) && !a.optional {
			return fmt.Errorf("%s is missing", strings.ReplaceAll(a.name, "|", " or "))
		}
	}
	if len(args) > len(wanted) && (len(wanted) == 0 || !wanted[len(wanted)-1].repeats) {
		return fmt.Errorf("%q is one argument too many", args[len(wanted)])
	}
	return err
}

// unknownCommand asks for the nearest.
func unknownCommand(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}

	said := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if ask := text.DidYouMean(name, known); ask != "" {
		return errors.New(said + "; " + ask)
	}
	return fmt.Errorf("%s; %s --help lists them", said, cmd.CommandPath())
}

// flagError asks for the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}

	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	if ask := text.DidYouMean("--"+unknown.GetSpecifiedName(), known); ask != "" {
		return fmt.Errorf("%w; %s", err, ask)
	}
	return err
}
