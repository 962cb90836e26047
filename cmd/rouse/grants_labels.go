package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// labelVerb is a verb that takes a label off what its caller has inspected.
type labelVerb struct{ use, label, short, long, done string }

var trustVerb = labelVerb{
	use: "trust", label: "A", short: "Marks data as trusted again", done: "counts as trusted",
	long: `Takes the label A (untrusted content) off files, with all that lies below them, or off all that an
agent keeps: its database, its workdir and where else it may write. Look at what the named runs
wrote there first: later runs that read it are not tainted by it any more.`,
}

var releaseVerb = labelVerb{
	use: "release", label: "B", short: "Marks data as holding nothing private", done: "counts as holding nothing private",
	long: `Takes the label B (private data) off files, with all that lies below them, or off all that an
agent keeps: its database, its workdir and where else it may write. Look at what the named runs
wrote there first: later runs may send it without asking, if they read nothing else that is private.
What the configuration calls private stays so.`,
}

func newClearLabel(at *place, v labelVerb) *cobra.Command {
	return &cobra.Command{
		Use:   v.use + " AGENT|PATH...",
		Short: v.short,
		Long:  v.long + "\n\nWhat holds a slash or a dot is a path: write ./notes for a file that is called as an agent could be.",
		Args:  cobra.MinimumNArgs(1),
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, args []string, s *session) error {
			// One that fails keeps none of the others from being cleared.
			var failed []error
			for _, arg := range args {
				failed = append(failed, v.clear(cmd, s, arg))
			}

			return errors.Join(failed...)
		}),
	}
}

// clear takes the label off one place, and tells of it.
func (v labelVerb) clear(cmd *cobra.Command, s *session, arg string) error {
	ask, err := clearRequest(v.label, arg)
	if err != nil {
		return err
	}

	var cleared []api.Label
	if err := s.Post(cmd.Context(), "/v1/labels/clear", ask, &cleared); err != nil {
		return err
	}

	what := text.OneLine(ask.Path)
	if ask.Agent != "" {
		what = "what " + text.OneLine(ask.Agent) + " keeps"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s)\n", what, v.done, text.Plural(len(cleared), "label"))

	return err
}

// agentName is what an agent can be called.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// clearRequest tells an agent from a path, and resolves that as labels have it.
func clearRequest(label, arg string) (api.ClearLabel, error) {
	if agentName.MatchString(arg) {
		return api.ClearLabel{Label: label, Agent: arg}, nil
	}

	path, err := filepath.Abs(arg)
	if err != nil {
		return api.ClearLabel{}, err
	}
	if actual, err := filepath.EvalSymlinks(path); err == nil { // what is gone keeps its label, and can lose it
		path = actual
	}
	return api.ClearLabel{Label: label, Path: path}, nil
}

// maxShownLabels bounds what is printed of them; --json has all.
const maxShownLabels = 40

func printLabels(w io.Writer, labels []api.Label) {
	for i, l := range labels {
		if i == maxShownLabels {
			fmt.Fprintf(w, "and %s more: rouse grants --json\n", text.Plural(len(labels)-i, "label"))
			return
		}

		v, held := trustVerb, "untrusted content (A)"
		if l.Label == releaseVerb.label {
			v, held = releaseVerb, "private data (B)"
		}

		what, name := labelledPlace(l)
		if l.Run == "" {
			fmt.Fprintf(w, "%s holds what runs of another ledger wrote there, perhaps after they had read %s; when you have checked it: rouse grants %s %s\n", what, held, v.use, name)
			continue
		}
		fmt.Fprintf(w, "%s holds what run %s wrote there after it had read %s; when you have checked it: rouse grants %s %s\n", what, l.Run, held, v.use, name)
	}
}

// labelledPlace is a place in words, and how it is named to the verbs.
func labelledPlace(l api.Label) (what, name string) {
	agent, table, _ := strings.Cut(l.Place, "/")
	switch l.Kind {
	case "table":
		return fmt.Sprintf("the table %s of %s", text.OneLine(table), text.OneLine(agent)), text.OneLine(agent)
	case "workspace":
		return fmt.Sprintf("the workspace %s of %s", text.OneLine(table), text.OneLine(agent)), text.OneLine(agent)
	case "database":
		return "the database of " + text.OneLine(l.Place), text.OneLine(l.Place)
	case "agent":
		return "what " + text.OneLine(l.Place) + " keeps", text.OneLine(l.Place)
	}
	return text.OneLine(l.Place), text.OneLine(l.Place)
}
