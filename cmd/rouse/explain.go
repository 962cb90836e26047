package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/text"
)

func newExplain(env *cli) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if job != "" {
				if len(args) > 0 {
					return usagef("give a key or --request, not both")
				}
				return explainRequest(cmd, env, job)
			}
			if len(args) == 0 {
				return listKeys(cmd, yaml.Keys())
			}

			found, hint := yaml.FindKeys(args[0])
			if len(found) == 0 {
				return usagef("there is no key %q in rouse.yaml; %s", args[0], cmp.Or(hint, "rouse explain lists them"))
			}
			const most = 6 // maximum number of keys with full text
			if len(found) > most {
				return listKeys(cmd, found)
			}
			return jsonOr(cmd, found, func() (err error) {
				for i, k := range found {
					if i > 0 {
						fmt.Fprintln(cmd.OutOrStdout())
					}
					err = errors.Join(err, explainKey(cmd.OutOrStdout(), k))
				}
				return err
			})
		},
	}

	cmd.Flags().StringVar(&job, "request", "", "print the first request of a `job`")
	return withJSON(cmd)
}

func listKeys(cmd *cobra.Command, keys []yaml.Key) error {
	return jsonOr(cmd, keys, func() error {
		return list(cmd.OutOrStdout(), keys, "", "KEY DEFAULT MEANING", func(k yaml.Key) []string {
			return []string{k.Path, orDash(shorten(k.Default, 40)), k.Says}
		})
	})
}

func explainKey(w io.Writer, k yaml.Key) error {
	fmt.Fprintln(w, bold(w, k.Path))
	rows := [][]string{{"  meaning", orDash(k.Says)}, {"  type", keyType(k)}, {"  default", keyDefault(k)}, {"  where", k.Where},
		{"  variable", k.Env}, {"  keys", strings.Join(k.Keys, ", ")}}
	if err := alignIndented(w, slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })); err != nil {
		return err
	}
	return sayf(w, "  for example\n    %s\n", strings.ReplaceAll(strings.TrimSuffix(text.Lines(k.Example), "\n"), "\n", "\n    "))
}

// keyType returns the type of a key, or its possible values.
func keyType(k yaml.Key) string {
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

func keyDefault(k yaml.Key) string {
	if k.Required {
		return "none: it must be given"
	}
	return k.Default
}

// explainRequest prints the first request that a run of the job sends to its model.
func explainRequest(cmd *cobra.Command, env *cli, job string) error {
	cfg, err := env.load()
	if err != nil {
		return err
	}
	names := (&plan.Setup{Config: cfg}).JobNames()
	if !slices.Contains(names, job) {
		return usagef("%s", text.NoSuch("job", job, names))
	}
	tables, err := tablesOf(cmd, env, cfg, job)
	if err != nil {
		return err
	}

	first, err := plan.FirstRequestOf(cmd.Context(), cfg, logging.Quiet(), job, tables)
	if err != nil {
		return err
	}
	return jsonOr(cmd, first, func() error { return printRequest(cmd.OutOrStdout(), first) })
}

func printRequest(w io.Writer, first plan.FirstRequest) error {
	fmt.Fprintf(w, "The first request of job %s (agent %s) to the model %s: %d bytes\n\n", first.Job, first.Agent, first.Model, first.Bytes)
	rows := [][]string{{"system prompt", strconv.Itoa(first.System)}, {"task", strconv.Itoa(first.Task)}, {text.Plural(len(first.EachOf), "tool"), strconv.Itoa(first.Tools)}}
	for _, t := range first.EachOf {
		rows = append(rows, []string{t.Name, strconv.Itoa(t.Bytes)})
	}
	if err := table(w, "PART BYTES", append(rows, []string{"other fields", strconv.Itoa(first.Other)})); err != nil {
		return err
	}
	if len(first.Missing) > 0 {
		fmt.Fprintf(w, "The run adds %s.\n", strings.Join(first.Missing, ", "))
	}

	var body bytes.Buffer
	if err := json.Indent(&body, first.Body, "", "  "); err != nil {
		return err
	}
	return sayf(w, "\n%s\n", &body)
}

// tablesOf returns the tables in the database of a job's agent. It does not create a missing home.
func tablesOf(cmd *cobra.Command, env *cli, cfg *config.Config, job string) (tables api.Schema, err error) {
	if _, err := os.Stat(filepath.Join(string(cfg.Home), "ledger.db")); err != nil && homedir.SharedLedger(string(cfg.Home)) == nil {
		return tables, nil //nolint:nilerr // the home does not exist, so it has no tables
	}
	i := slices.IndexFunc(cfg.Jobs, func(j config.Job) bool { return string(j.Name) == job })
	k := slices.IndexFunc(cfg.Agents, func(a config.Agent) bool { return i >= 0 && string(a.Name) == cfg.Jobs[i].Agent })
	if k < 0 || !config.On(cfg.Agents[k].Database.Enabled) {
		return tables, nil
	}

	s, err := env.open(cmd, toRead)
	if err != nil {
		return tables, err
	}
	defer s.close()
	return tables, s.get("/v1/agents/"+url.PathEscape(cfg.Jobs[i].Agent)+"/schema", nil, &tables)
}
