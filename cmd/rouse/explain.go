package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// maxExplained is how many keys of one name are shown in full.
const maxExplained = 6

func newExplain(at *place) *cobra.Command {
	var asJSON bool
	var job string
	cmd := &cobra.Command{
		Use:   "explain [KEY | --request JOB]",
		Short: "Says what a key of the configuration means, or what a job sends to its model",
		Long: `Says what a key of the configuration means: its type and values, its default, where it may
stand, and an example. A key is given by the end of its path: schedule, watch.path,
jobs[].retry.attempts. Without a key all are listed.

With --request it prints the first request of a job, with the bytes of the system prompt, the task
and each tool. No program is started, and no model is asked.`,
		Example: `  rouse explain schedule
  rouse explain agents.grants
  rouse explain --json
  rouse explain --request report`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if job != "" {
				if len(args) > 0 {
					return usagef("give a key or --request, not both")
				}
				return explainRequest(cmd, at, job, asJSON)
			}
			if len(args) == 0 {
				return listKeys(cmd.OutOrStdout(), config.Keys(), asJSON)
			}

			found, hint := config.FindKeys(args[0])
			if len(found) == 0 {
				if hint == "" {
					hint = "rouse explain lists them"
				}
				return usagef("there is no key %q in rouse.yaml; %s", args[0], hint)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			if len(found) > maxExplained {
				return listKeys(cmd.OutOrStdout(), found, false)
			}
			for i, k := range found {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if err := explainKey(cmd.OutOrStdout(), k); err != nil {
					return err
				}
			}
			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&job, "request", "", "print the first request of a `job`")
	return cmd
}

func listKeys(w io.Writer, keys []config.Key, asJSON bool) error {
	if asJSON {
		return printJSON(w, keys)
	}

	var rows [][]string
	for _, k := range keys {
		rows = append(rows, []string{k.Path, orDash(shorten(k.Default, 40)), k.Says})
	}
	return table(w, "KEY DEFAULT MEANING", rows)
}

func explainKey(w io.Writer, k config.Key) error {
	fmt.Fprintln(w, bold(w, k.Path))
	rows := [][]string{{"meaning", orDash(k.Says)}, {"type", keyType(k)}}
	for _, row := range [][]string{{"default", keyDefault(k)}, {"where", k.Where}, {"variable", k.Env}, {"keys", strings.Join(k.Keys, ", ")}} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	for i := range rows {
		rows[i][0] = "  " + rows[i][0]
	}
	if err := alignIndented(w, rows); err != nil {
		return err
	}

	return sayf(w, "  for example\n    %s\n", strings.ReplaceAll(strings.TrimSuffix(text.Lines(k.Example), "\n"), "\n", "\n    "))
}

// keyType is the type of a key, or what it can be.
func keyType(k config.Key) string {
	said := k.Type
	if len(k.Values) > 0 {
		said = "one of " + strings.Join(k.Values, ", ")
		if strings.HasPrefix(k.Type, "a list") {
			said = "a list, of " + strings.Join(k.Values, ", ")
		}
	}
	if k.Secret {
		said += "; its value is never shown or stored"
	}
	return said
}

func keyDefault(k config.Key) string {
	if k.Required {
		return "none: it must be given"
	}
	return k.Default
}
