package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rouse/agent"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

func newTools() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "tools [TOOL]",
		Short: "Lists the tools that agents can have; of one: its arguments, its effect, the grants that it needs, an example",
		Long: `Lists the tools that agents can have. Of one it shows its arguments, its effect, which agents
have it, the grants that decide how far it reaches, and an example call.

Skills and MCP servers bring further tools: rouse skills list, rouse mcp-servers tools. --all also
lists what modules of skills get of their host, and what agent programs are recorded as.`,
		Example: `  rouse tools
  rouse tools db_import
  rouse tools web_fetch --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return showTool(cmd, args[0])
			}
			return listTools(cmd, all)
		},
	}

	cmd.Flags().BoolVar(&all, "all", false, "also those that only modules of skills and agent programs have")
	return withJSON(cmd)
}

// toolReport is a tool in the output of rouse tools --json.
type toolReport struct {
	Name        string          `json:"name"`
	AliasOf     string          `json:"alias_of,omitempty"` // name of the tool for which this is an alias
	Summary     string          `json:"summary"`            // one sentence
	Effect      domain.Effect   `json:"effect"`
	GivenTo     string          `json:"given_to"` // which agents have the tool
	Grants      []string        `json:"grants"`   // configuration keys that set the limits of the tool
	Ends        bool            `json:"ends_run"`
	OnDemand    bool            `json:"on_demand"` // not in the model's initial list
	Arguments   []tool.Argument `json:"arguments"`
	Example     json.RawMessage `json:"example"`           // arguments of a typical call
	Command     string          `json:"command,omitempty"` // the same call as a command; "" if there is no such command
	Description string          `json:"description"`       // description for models
}

func reportOf(s tool.Spec) (r toolReport, err error) {
	r = toolReport{Name: s.Name, AliasOf: s.AliasOf, Summary: s.FirstSentence(), Effect: s.Effect, GivenTo: s.GivenTo(), Grants: s.Grants(), Ends: s.Ends, OnDemand: s.OnDemand, Description: strings.TrimSpace(s.Description)}
	if r.Arguments, err = s.ArgumentList(); err != nil {
		return r, err
	}
	if r.Example, err = s.ExampleArgs(); err != nil {
		return r, err
	}
	if s.Callable() {
		r.Command = fmt.Sprintf("rouse call AGENT %s %s", s.Name, quoteForShell(string(r.Example)))
	}
	return r, nil
}

// quoteForShell quotes a text as one word of a shell command line.
func quoteForShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func listTools(cmd *cobra.Command, all bool) error {
	specs := agent.Specs()
	listed := specs.Where(tool.Spec.Listed)
	if all {
		listed = specs
	}
	reports := []toolReport{}
	for _, s := range listed {
		r, err := reportOf(s)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}

	return jsonOr(cmd, reports, func() error {
		w := cmd.OutOrStdout()
		err := list(w, reports, "", "TOOL EFFECT NEEDS WHAT", func(r toolReport) []string {
			return []string{r.Name, string(r.Effect), toolNeeds(specs.Find(r.Name)), r.Summary}
		})
		if err != nil {
			return err
		}
		said := "more of one: rouse tools TOOL"
		if hidden := len(specs) - len(listed); hidden > 0 {
			said += fmt.Sprintf("; %d more that modules and agent programs have: --all", hidden)
		}
		return sayf(w, "%s\n", said)
	})
}

// toolNeeds returns the requirements of a tool in a few words.
func toolNeeds(s tool.Spec) string {
	var needs []string
	if s.AliasOf != "" {
		needs = append(needs, "tools.allow")
	}
	switch s.Requires {
	case tool.RequiresNothing, tool.RequiresCommands, tool.RequiresNetwork, tool.RequiresRepository:
	default:
		needs = append(needs, strings.ReplaceAll(string(s.Requires), "untold", "on_demand"))
	}
	if s.Requires == tool.RequiresRepository {
		needs = append(needs, string(s.Requires))
	} else {
		needs = append(needs, s.Grants()...)
	}
	return orDash(strings.Join(needs, ", "))
}

// effectTexts describe the possible effects of a tool.
var effectTexts = map[domain.Effect]string{
	domain.EffectRead:     "reads: nothing is different afterwards",
	domain.EffectDatabase: "writes into the agent's database or the history, once for each call",
	domain.EffectWrite:    "writes files of this machine",
	domain.EffectExternal: "reaches beyond rouse: programs, servers, other people",
}

func showTool(cmd *cobra.Command, name string) error {
	specs := agent.Specs()
	s := specs.Find(name)
	if s.Name == "" {
		return usagef("%s; rouse tools lists them", text.NoSuch("tool", name, specs.Names()))
	}
	r, err := reportOf(s)
	if err != nil {
		return err
	}
	return jsonOr(cmd, r, func() error { return printTool(cmd.OutOrStdout(), r) })
}

func printTool(w io.Writer, r toolReport) error {
	fmt.Fprintf(w, "%s\n\n%s\n\n", bold(w, r.Name), r.Description)
	rows := [][]string{{"effect", effectTexts[r.Effect]}, {"given to", r.GivenTo}}
	if r.AliasOf != "" {
		rows = append(rows, []string{"alias of", r.AliasOf})
	}
	if len(r.Grants) > 0 {
		rows = append(rows, []string{"grants", strings.Join(r.Grants, ", ") + ": what it does not cover waits for your approval, or is refused"})
	}
	if r.OnDemand {
		rows = append(rows, []string{"listed", "on demand: a model loads it with capabilities_load or calls it by its name, unless tools.allow names it"})
	}
	if r.Ends {
		rows = append(rows, []string{"ends", "a success ends the run, or its attempt"})
	}
	if err := align(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)

	err := list(w, r.Arguments, "It takes no arguments.", "ARGUMENT NEEDED VALUE MEANING", func(a tool.Argument) []string {
		needed := "–"
		if a.Required {
			needed = "yes"
		}
		return []string{a.Name, needed, cmp.Or(strings.Join(a.Values, ", "), a.Type), a.Description}
	})
	switch {
	case err != nil:
		return err
	case r.Command == "": // only models call it
		return sayf(w, "\nan example of its arguments; it cannot be called with rouse call:\n  %s\n", r.Example)
	}
	return sayf(w, "\nan example, as a command and in a playbook:\n  %s\n  - {call: %s, with: %s}\n", r.Command, r.Name, r.Example)
}
