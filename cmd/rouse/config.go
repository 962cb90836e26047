package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/homedir"
	"rouse/internal/text"
)

func newConfig(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Checks, shows and describes the configuration",
	}

	cmd.AddCommand(newConfigCheck(env), newConfigShow(env), newConfigSchema(), newConfigReload(env))
	return cmd
}

func newConfigReload(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "reload",
		Short: "Has the daemon read the configuration again, and says what changed; exits 1 on errors",
		Long: `Has the daemon read the configuration again, and says what changed. It does so by itself
when a file changes; with errors nothing changes, and they are listed.`,
		RunE: env.inHome(func(cmd *cobra.Command, _ []string, home string) error {
			// Do not use at.open: a reload in this process would have no effect.
			client, err := homedir.ConnectDaemon(cmd.Context(), home)
			if errors.Is(err, api.ErrNoDaemon) {
				return fmt.Errorf("no daemon serves %s; the configuration is read when one starts", home)
			}
			if err != nil {
				return err
			}

			var result api.Reload
			if err := client.Post(cmd.Context(), "/v1/reload", struct{}{}, &result); err != nil {
				return err
			}
			return failIf(!result.OK, jsonOr(cmd, result, func() error {
				var st api.Status // only for its zone; if the request fails, use this terminal's zone
				_ = client.Get(cmd.Context(), "/v1/status", nil, &st)
				printReload(cmd.OutOrStdout(), result, time.Now().In(loadZone(st.Zone)))
				return nil
			}))
		}),
	})
}

func printReload(w io.Writer, result api.Reload, now time.Time) {
	printProblems(w, result.Problems)
	if !result.OK {
		fmt.Fprintln(w, "nothing has changed")
		return
	}

	said := "the configuration is as it was"
	if result.Latest != nil { // the daemon may have just reloaded a saved file
		said += fmt.Sprintf(" since it was read at %s: %s", local(result.Latest.At, now), result.Latest.Summary)
	}
	fmt.Fprintln(w, cmp.Or(result.Summary(), said))
	for _, what := range result.Restart {
		fmt.Fprintln(w, what)
	}
}

func printProblems(w io.Writer, found []api.Problem) {
	for _, p := range found {
		fmt.Fprintln(w, text.OneLine(config.Problem(p).String()))
	}
}

// checked is the output of `rouse config check --json`.
type checked struct {
	OK       bool             `json:"ok"`
	Files    []string         `json:"files"`
	Problems []config.Problem `json:"problems"`
}

func newConfigCheck(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "check",
		Short: "Checks the configuration and lists every problem; exits 1 on errors",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := env.check()
			var wrong *config.Errors
			// Mistakes in the configuration are the result of this command, not an error.
			if err != nil && !errors.As(err, &wrong) {
				return err
			}

			// Use empty lists, so that the JSON has [] and never null.
			result := checked{OK: err == nil, Files: []string{}, Problems: []config.Problem{}}
			if wrong != nil {
				result.Problems = append(result.Problems, wrong.Problems...)
			}
			if cfg != nil {
				result.Files = append(result.Files, cfg.Files...)
				result.Problems = append(result.Problems, cfg.Warnings...)
			}
			if result.OK {
				found, err := doctor.CheckModules(cmd.Context(), cfg)
				if err != nil {
					return err
				}
				found = append(found, doctor.CheckPlan(cmd.Context(), cfg)...)
				result.OK = !slices.ContainsFunc(found, func(p config.Problem) bool { return !p.Warning })
				result.Problems = append(result.Problems, found...)
			}

			return failIf(!result.OK, jsonOr(cmd, result, func() error {
				for _, p := range result.Problems {
					fmt.Fprintln(cmd.OutOrStdout(), p)
				}
				if result.OK {
					fmt.Fprintf(cmd.OutOrStdout(), "%s, %s: no errors\n", text.Plural(len(cfg.Jobs), "job"), text.Plural(len(cfg.Agents), "agent"))
				}
				return nil
			}))
		},
	})
}

func newConfigShow(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Prints the configuration as it takes effect, defaults filled in and secrets masked",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := env.load()
			if err != nil {
				return err
			}

			text, err := yaml.Show(cfg)
			if err != nil {
				return err
			}

			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Prints the JSON Schema that editors use",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := yaml.Schema()
			if err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "%s\n", text)
		},
	}
}
