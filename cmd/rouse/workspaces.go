package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger/workspace"
	"rouse/internal/text"
)

var workspaceStatuses = text.Strings([]workspace.Status{workspace.Active, workspace.Paused, workspace.Archived})

func newWorkspaces(env *cli) *cobra.Command {
	var agent, status string
	var wanted pages
	cmd := &cobra.Command{
		Use:   "workspaces",
		Short: "Lists the workspaces of skills: state that outlives runs; shows, pauses, archives and reviews them",
		Long: `Lists the workspaces of skills: state that outlives runs, with phases and artifacts, of one skill
for one agent.

Where a run ended badly in the middle of its changes, no run works in its workspace until you have
looked at it with "rouse workspaces show" and said: acknowledge (it is right as it is), discard
(back to the last checkpoint of that run), or retry (back to it, and a new run from there).`,
		RunE: env.with(toRead, func(s *session, _ []string) error {
			all, err := getPages(s, "/v1/workspaces", queryOf("agent", agent, "status", status), wanted, func(w api.Workspace) string { return w.ID })
			if err != nil {
				return err
			}
			return jsonOr(s.cmd, all, func() error {
				return list(s.out, all, "there are no workspaces", "ID NAME SKILL AGENT STATUS PHASE RUN WRITTEN", func(w api.Workspace) []string {
					return []string{w.ID, w.Name, w.Skill, w.Agent, workspaceStatus(w), orDash(w.Phase), workspaceRun(w), when(w.UpdatedAt, s.now())}
				})
			})
		}),
	}

	cmd.Flags().StringVar(&agent, "agent", "", "only those of this `agent`")
	wanted.flags(cmd.Flags(), pageSize, "workspace", "")
	cmd.Flags().StringVar(&status, "status", "", "only this `status`: "+strings.Join(workspaceStatuses, ", "))
	cmd.AddCommand(
		newWorkspaceShow(env),
		newWorkspaceAction(env, "pause", "Lets no run work in a workspace, until you resume it"),
		newWorkspaceAction(env, "resume", "Lets runs work in a workspace again that was paused or archived"),
		newWorkspaceAction(env, "archive", "Puts a workspace away that is done with"),
		newWorkspaceAction(env, "acknowledge", "Takes a workspace as a run left it that ended in the middle of its changes"),
		newWorkspaceAction(env, "discard", "Puts a workspace back to the last checkpoint of such a run"),
		newWorkspaceRetry(env),
		newArtifactDecision(env, "approve", "Approves an artifact of a workspace, in the version that is shown"),
		newArtifactDecision(env, "reject", "Rejects an artifact of a workspace, in the version that is shown"),
		newWorkspaceArtifact(env),
	)
	return withJSON(cmd)
}

// workspaceStatus returns the status of a workspace, or a more specific note.
func workspaceStatus(w api.Workspace) string {
	if w.Review != "" {
		return "needs a review"
	}
	return string(w.Status)
}

// workspaceRun returns the run that works in a workspace, and the reason for which it waits.
func workspaceRun(w api.Workspace) string {
	if w.Run != "" && w.WaitingFor != "" {
		return fmt.Sprintf("%s waits: %s", w.Run, w.WaitingFor)
	}
	return orDash(w.Run)
}

func orDash(s string) string { return cmp.Or(s, "–") }

func newWorkspaceShow(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "show WORKSPACE",
		Short: "Shows one workspace: who works in it, how far, what that waits for; artifacts, past runs, state",
		RunE: showing(env, "/v1/workspaces/%s", func(s *session, d api.WorkspaceDetail) error {
			printWorkspace(s.out, d, s.now())
			return nil
		}),
	})
}

// printWorkspace prints all details of a workspace. Names, titles and progress come from skills and
// models, so each is printed as one escaped line.
func printWorkspace(w io.Writer, d api.WorkspaceDetail, now time.Time) {
	fmt.Fprintf(w, "workspace %s: %s, of the skill %s (agent %s)  %s\n", d.ID, text.OneLine(d.Name), text.OneLine(d.Skill), d.Agent, workspaceStatus(d.Workspace))
	field(w, "phase", text.OneLine(d.Phase))
	field(w, "role", text.OneLine(d.Role))
	field(w, "schema", text.OneLine(d.SchemaVersion))
	field(w, "created", local(d.CreatedAt, now))
	field(w, "written", fmt.Sprintf("%s (lock version %d)", local(d.UpdatedAt, now), d.LockVersion))
	field(w, "state", text.Size(int64(len(d.State)))+": "+shorten(string(d.State), 300))
	if d.Review != "" {
		fmt.Fprintf(w, "  review    run %s ended in the middle of its changes; rouse show %[1]s\n", d.Review)
		fmt.Fprintf(w, "            rouse workspaces acknowledge|discard|retry %s\n", d.ID)
	}

	for _, a := range d.Active {
		printWorkspaceRun(w, a)
	}
	printWorkspaceArtifacts(w, d)
	printWorkspaceJobs(w, d, now)

	for _, r := range d.Runs {
		fmt.Fprintf(w, "  run %-5s %s  %s  %s\n", r.ID, paint(w, outcomeMark(r)), when(r.FinishedAt, now), shorten(cmp.Or(r.Error, r.Summary), 100))
	}
}

// printWorkspaceRun prints the progress of a run, why it waits, and the possible commands.
func printWorkspaceRun(w io.Writer, a api.WorkspaceRun) {
	fmt.Fprintf(w, "  works     run %s  %s", a.Run.ID, paint(w, outcomeMark(a.Run)))
	if a.Step != "" {
		fmt.Fprintf(w, ", at the step %s", text.OneLine(a.Step))
	}
	if said := progressText(a.Progress); said != "" {
		fmt.Fprintf(w, ", %s", said)
	}
	fmt.Fprintln(w)

	for _, i := range a.Inbox {
		first, _, _ := strings.Cut(i.Message, "\n")
		fmt.Fprintf(w, "            %s\n            %s\n", shorten(first, 200), answerHint(i))
	}

	actions := "rouse stop " + a.Run.ID
	if a.Run.WaitingFor == "retry" {
		actions = "rouse retry " + a.Run.ID + ", or " + actions
	}
	fmt.Fprintf(w, "            %s\n", actions)
}

// progressText formats the progress of a skill, as a fraction of 1: "40 %: reading".
func progressText(raw json.RawMessage) string {
	var p struct {
		Value any `json:"value"` // skills may set a value of any type
		Text  any `json:"text"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return ""
	}

	var parts []string
	if part, ok := p.Value.(float64); ok {
		parts = append(parts, fmt.Sprintf("%.0f %%", part*100))
	}
	if said, ok := p.Text.(string); ok && said != "" {
		parts = append(parts, shorten(said, 100))
	}
	return strings.Join(parts, ": ")
}

// printWorkspaceJobs prints the programs that runs have recently started, with their results.
func printWorkspaceJobs(w io.Writer, d api.WorkspaceDetail, now time.Time) {
	for _, e := range d.Events {
		var job struct {
			State string `json:"state"`
		}
		if e.Kind == workspace.JobEvent && json.Unmarshal(e.Data, &job) == nil {
			fmt.Fprintf(w, "  program   of run %s, %s: %s\n", e.Run, local(e.At, now), text.OneLine(job.State))
		}
	}
}

func printWorkspaceArtifacts(w io.Writer, d api.WorkspaceDetail) {
	waits := false
	for _, a := range d.Artifacts {
		decided := a.Approval
		if decided == "" {
			decided, waits = "nobody has approved it", true
		}
		if a.Status != a.Approval {
			decided = a.Status + "; " + decided
		}
		about := fmt.Sprintf("version %d, %s", a.Version, text.Size(a.Size))
		if a.Type != "" {
			about = a.Type + ", " + about
		}
		fmt.Fprintf(w, "  artifact  %s  %s (%s): %s\n", a.ID, shorten(a.Title, 80), text.OneLine(about), text.OneLine(decided))
	}
	if len(d.Artifacts) > 0 {
		fmt.Fprintf(w, "            rouse workspaces artifact %s ID\n", d.ID)
	}
	if waits {
		fmt.Fprintf(w, "            rouse workspaces approve|reject %s ID\n", d.ID)
	}
}

// newWorkspaceAction returns a command that performs an action on one workspace.
func newWorkspaceAction(env *cli, name, short string) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   name + " WORKSPACE",
		Short: short,
		RunE: sending(env, "/v1/workspaces/%s/"+name, func(s *session, w api.Workspace) error {
			return sayf(s.out, "workspace %s (%s) is %s\n", w.ID, text.OneLine(w.Name), w.Status)
		}),
	})
}

func newWorkspaceRetry(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "retry WORKSPACE",
		Short: "Puts a workspace back to that checkpoint, and has a new run begin from it",
		RunE: sending(env, "/v1/workspaces/%s/retry", func(s *session, w api.RetriedWorkspace) error {
			said := fmt.Sprintf("run %s begins from the checkpoint", w.Retry.ID)
			if !s.executes(w.Retry) {
				said += " when a daemon starts: rouse serve"
			}
			return sayf(s.out, "%s\n", said)
		}),
	})
}

// newArtifactDecision returns a command for an owner's decision, which overrides the skill's.
func newArtifactDecision(env *cli, name, short string) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   name + " WORKSPACE ARTIFACT",
		Short: short,
		RunE: sending(env, "/v1/workspaces/%s/artifacts/%s/"+name, func(s *session, a api.WorkspaceArtifact) error {
			return sayf(s.out, "artifact %s (%s, version %d) is %s\n", a.ID, shorten(a.Title, 80), a.Version, a.Approval)
		}),
	})
}

func newWorkspaceArtifact(env *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "artifact WORKSPACE ARTIFACT",
		Short: "Prints an artifact of a workspace, or writes it to a file",
		RunE: env.with(toRead, func(s *session, args []string) error {
			var d api.WorkspaceDetail
			if err := s.get("/v1/workspaces/"+url.PathEscape(args[0]), nil, &d); err != nil {
				return err
			}

			n := slices.IndexFunc(d.Artifacts, func(a api.WorkspaceArtifact) bool { return a.ID == args[1] })
			if n < 0 {
				return usagef("workspace %s has no artifact %s that counts; see: rouse workspaces show %[1]s", d.ID, args[1])
			}
			return fetchArtifact(s, d.Artifacts[n].Run, d.Artifacts[n].Artifact, to)
		}),
	}

	cmd.Flags().StringVar(&to, "to", "", "write to a new `file`")
	return cmd
}
