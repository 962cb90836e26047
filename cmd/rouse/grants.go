package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newGrants(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Lists standing approvals, which hold until you revoke them, in addition to the configured grants",
		Long: `Lists what you have allowed with "rouse approve --always", and approved definitions of jobs.
It also lists the labels on data, with the run that set each: files and tables that hold what a run
wrote after it had read untrusted content (A) or private data (B). Whichever run reads them gets the
label, too, until you have checked them and run "rouse grants trust" for A, or "rouse grants release" for B.`,
		RunE: env.with(toRead, func(s *session, _ []string) error {
			var standing standingPermission
			if err := s.get("/v1/grants", nil, &standing.Grants); err != nil {
				return err
			}
			if err := s.get("/v1/labels", nil, &standing.Labels); err != nil {
				return err
			}
			return jsonOr(s.cmd, standing, func() error {
				printGrants(s.out, standing.Grants, s.now())
				printLabels(s.out, standing.Labels)
				return nil
			})
		}),
	}
	cmd.AddCommand(newRevoke(env), newClearLabel(env, trustVerb), newClearLabel(env, releaseVerb))
	return withJSON(cmd)
}

// standingPermission is the output of the command with --json.
type standingPermission struct {
	Grants []api.Grant `json:"grants"`
	Labels []api.Label `json:"labels"`
}

func printGrants(w io.Writer, given []api.Grant, now time.Time) {
	if len(given) == 0 {
		fmt.Fprintln(w, "there are no standing approvals; agents may do what the configuration grants")
	}
	for _, g := range given {
		// An approval without a tool approves the definition of a job.
		what := cmp.Or(g.Tool, "the definition of a job")
		fmt.Fprintf(w, "%s  %s: %s (since %s, item %s)\n", g.ID, text.OneLine(g.Agent), text.OneLine(what), local(g.CreatedAt, now), g.Item)
		printAction(w, g.Action)
	}
}

func newRevoke(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke GRANT",
		Short: "Revokes a standing approval: the agent has to ask again",
		RunE: sending(env, "/v1/grants/%s/revoke", func(s *session, g api.Grant) error {
			return sayf(s.out, "grant %s of %s is revoked\n", g.ID, text.OneLine(g.Agent))
		}),
	}
}

// labelVerb is a command that removes a label from a place after its owner has inspected it.
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

func newClearLabel(env *cli, v labelVerb) *cobra.Command {
	return &cobra.Command{
		Use:   v.use + " AGENT|PATH...",
		Short: v.short,
		Long:  v.long + "\n\nWhat holds a slash or a dot is a path: write ./notes for a file that is called as an agent could be.",
		RunE: env.with(toRead, func(s *session, args []string) error {
			// If one place fails, still clear the others.
			var failed []error
			for _, arg := range args {
				failed = append(failed, v.clear(s, arg))
			}
			return errors.Join(failed...)
		}),
	}
}

// clear removes the label from one place and prints the result.
func (v labelVerb) clear(s *session, arg string) error {
	ask, err := clearRequest(v.label, arg)
	if err != nil {
		return err
	}
	var cleared []api.Label
	if err := s.post("/v1/labels/clear", ask, &cleared); err != nil {
		return err
	}
	what := text.OneLine(ask.Path)
	if ask.Agent != "" {
		what = "what " + text.OneLine(ask.Agent) + " keeps"
	}
	return sayf(s.out, "%s %s (%s)\n", what, v.done, text.Plural(len(cleared), "label"))
}

// agentName matches the names of agents.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// clearRequest returns the request for an agent or a path. It resolves links, as labels do.
func clearRequest(label, arg string) (api.ClearLabel, error) {
	if agentName.MatchString(arg) {
		return api.ClearLabel{Label: label, Agent: arg}, nil
	}

	path, err := filepath.Abs(arg)
	if err != nil {
		return api.ClearLabel{}, err
	}
	if actual, err := filepath.EvalSymlinks(path); err == nil { // fails for a deleted file, which keeps its label
		path = actual
	}
	return api.ClearLabel{Label: label, Path: path}, nil
}

func printLabels(w io.Writer, labels []api.Label) {
	const most = 40 // --json lists all
	for _, l := range labels[:min(len(labels), most)] {
		v, held := trustVerb, "untrusted content (A)"
		if l.Label == releaseVerb.label {
			v, held = releaseVerb, "private data (B)"
		}
		writer := "what runs of another ledger wrote there, perhaps after they had read "
		if l.Run != "" {
			writer = "what run " + l.Run + " wrote there after it had read "
		}
		what, name := labelledPlace(l)
		fmt.Fprintf(w, "%s holds %s%s; when you have checked it: rouse grants %s %s\n", what, writer, held, v.use, name)
	}
	if more := len(labels) - most; more > 0 {
		fmt.Fprintf(w, "and %s more: rouse grants --json\n", text.Plural(more, "label"))
	}
}

// labelledPlace returns the description of a place, and its name in the verbs.
func labelledPlace(l api.Label) (what, name string) {
	agent, part, _ := strings.Cut(text.OneLine(l.Place), "/")
	switch l.Kind {
	case "table", "workspace":
		return fmt.Sprintf("the %s %s of %s", l.Kind, part, agent), agent
	case "database":
		return "the database of " + agent, agent
	case "agent":
		return "what " + agent + " keeps", agent
	}
	return text.OneLine(l.Place), text.OneLine(l.Place)
}
