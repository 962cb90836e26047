package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/secret"
	"rouse/internal/text"
)

func newSecrets(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Keeps the values behind secret:NAME, and says who uses them",
		Long: `Keeps the values that the configuration names as secret:NAME: API keys, tokens, passwords.
They are in the keyring of the system, or, where there is none that answers, encrypted in
HOME/secrets.age; what is in neither is taken from the environment as ROUSE_SECRET_NAME.`,
	}

	cmd.AddCommand(newSecretsSet(env), newSecretsList(env), newSecretsRemove(env))
	return cmd
}

func newSecretsSet(env *cli) *cobra.Command {
	var in string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Reads a value, and keeps it",
		Long: `Reads a value from the terminal, where it is not shown, or from standard input, and keeps
it. One line end behind it is left out. It is no argument: what stands on a command line is
in the history of the shell, and every program can see it.

A running daemon uses the new value at once.`,
		Example: `  rouse secrets set anthropic
  pass show bank/api | rouse secrets set bank
  rouse secrets set anthropic --in file`,
		Args: func(_ *cobra.Command, args []string) error {
			// The value was typed as an argument, so it is in the shell's history now.
			if len(args) > 1 {
				return usagef("give the name alone; the value is read from the terminal or standard input, and should be changed now if it was the real one")
			}
			return cobra.ExactArgs(1)(nil, args)
		},
		RunE: env.inHome(func(cmd *cobra.Command, args []string, home string) error {
			name, to := args[0], secret.Source(in)
			if to != "" && to != secret.InKeyring && to != secret.InFile {
				return usagef("--in takes keyring or file, not %q", text.OneLine(in))
			}
			if err := secret.CheckName(name); err != nil {
				return usageError{err}
			}
			store, err := secret.New(secret.Options{Home: home})
			if err != nil {
				return err
			}
			value, err := readSecret(cmd, name)
			if err != nil {
				return err
			}

			where, why, err := store.Set(name, value, to)
			if err != nil {
				return fmt.Errorf("the secret %s was not set: %w", name, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the secret %s is kept in %s\n", name, placeWords(where))
			if why != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "not in the keyring: %s\n", text.OneLine(why))
			}
			return tellDaemon(cmd.Context(), cmd.OutOrStdout(), home)
		}),
	}

	cmd.Flags().StringVar(&in, "in", "", "the `place` where it is kept: keyring or file; the keyring when it answers, unless this says otherwise")
	return cmd
}

func placeWords(s secret.Source) string {
	switch s {
	case secret.InKeyring:
		return "the keyring of this system"
	case secret.InEnvironment:
		return "the environment"
	}
	return "HOME/secrets.age"
}

// readSecret asks on a terminal, or reads standard input.
func readSecret(cmd *cobra.Command, name string) (string, error) {
	if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) { //nolint:gosec // file descriptors fit into an int
		fmt.Fprintf(cmd.ErrOrStderr(), "value of %s (not shown): ", name)
		value, err := term.ReadPassword(int(f.Fd())) //nolint:gosec // file descriptors fit into an int
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", fmt.Errorf("the value cannot be read: %w", err)
		}
		return string(value), nil
	}

	// Three bytes more than allowed: for a line end (two on Windows), and to detect a longer value.
	text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), secret.MaxValue+3))
	if err != nil {
		return "", fmt.Errorf("the value cannot be read: %w", err)
	}
	// Remove the line break of echo and pass, which is not part of the secret.
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// tellDaemon makes a running daemon reload its configuration and secrets.
func tellDaemon(ctx context.Context, w io.Writer, home string) error {
	var result api.Reload
	client, err := homedir.ConnectDaemon(ctx, home)
	if err == nil {
		err = client.Post(ctx, "/v1/reload", struct{}{}, &result)
	}
	switch {
	case errors.Is(err, api.ErrNoDaemon): // the next daemon reads the secrets when it starts
		return nil
	case err != nil:
		return fmt.Errorf("it is done, but the daemon could not be notified: %w", err)
	case !result.OK:
		fmt.Fprintln(w, "the daemon goes on with what it had:")
		printProblems(w, result.Problems)
		return errSilent
	}
	return sayf(w, "the daemon uses it now\n")
}

func newSecretsRemove(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Forgets a value",
		RunE: env.inHome(func(cmd *cobra.Command, args []string, home string) error {
			store, err := secret.New(secret.Options{Home: home})
			if err != nil {
				return err
			}
			from, err := store.Remove(args[0])
			if errors.Is(err, secret.ErrNotSet) {
				list, listErr := store.List()
				if listErr != nil {
					return listErr
				}
				return usagef("%s", text.NoSuch("secret", text.OneLine(args[0]), slices.Sorted(maps.Keys(list))))
			}
			if err != nil {
				return fmt.Errorf("the secret %s was not removed: %w", args[0], err)
			}

			for _, s := range from {
				fmt.Fprintf(cmd.OutOrStdout(), "the secret %s is gone from %s\n", args[0], placeWords(s))
			}
			// The environment cannot be cleared from here. Warn that the removed secret still
			// works.
			if value, _, err := store.Get(args[0]); err == nil && value != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "it is still set in the environment, as %s\n", secret.Variable(args[0]))
			}
			return tellDaemon(cmd.Context(), cmd.OutOrStdout(), home)
		}),
	}
}

// secretEntry is a secret in the output of `rouse secrets list --json`, without its value.
type secretEntry struct {
	Name   string       `json:"name"`
	KeptIn string       `json:"kept_in"` // keyring, file, environment; "" if it is not set
	UsedBy []secretUser `json:"used_by"`
}

type secretUser struct {
	Of     string `json:"of"` // such as: model claude
	Key    string `json:"key"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	OnlyTo string `json:"only_to,omitempty"`
}

func newSecretsList(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "list",
		Short: "Lists the secrets, where each is kept and who may use it; never a value",
		RunE: env.inHome(func(cmd *cobra.Command, _ []string, home string) error {
			secrets, err := listSecrets(env, home)
			if err != nil {
				return err
			}
			return jsonOr(cmd, secrets, func() error { return printSecrets(cmd.OutOrStdout(), secrets) })
		}),
	})
}

func listSecrets(env *cli, home string) ([]secretEntry, error) {
	store, err := secret.New(secret.Options{Home: home})
	if err != nil {
		return nil, err
	}
	kept, err := store.List()
	if err != nil {
		return nil, err
	}
	cfg, err := env.load() // rouse config check reports its problems
	if cfg == nil && err != nil && !errors.Is(err, yaml.ErrNoFile) {
		return nil, err
	}
	users := map[string][]secretUser{}
	if cfg != nil {
		for _, r := range cfg.Secrets.Refs {
			u := secretUser{Of: r.Of, Key: r.Path, File: r.At.File, Line: r.At.Line}
			// only_to belongs to a grant, not to the reference: find the grant by the agent's name.
			for _, a := range cfg.Agents {
				for _, g := range a.Grants.Secrets {
					if r.Of == "agent "+string(a.Name) && g.Name == r.Name {
						u.OnlyTo = g.OnlyTo
					}
				}
			}
			users[r.Name] = append(users[r.Name], u)
		}
	}

	names := slices.AppendSeq(slices.Collect(maps.Keys(kept)), maps.Keys(users))
	slices.Sort(names)
	out := []secretEntry{}
	for _, name := range slices.Compact(names) {
		e := secretEntry{Name: name, KeptIn: string(kept[name]), UsedBy: append([]secretUser{}, users[name]...)}
		// The store can list its secrets. The environment is only searched by name.
		if e.KeptIn == "" && os.Getenv(secret.Variable(name)) != "" {
			e.KeptIn = string(secret.InEnvironment)
		}
		out = append(out, e)
	}
	return out, nil
}

func printSecrets(w io.Writer, entries []secretEntry) error {
	return list(w, entries, "no secret is set; set one with: rouse secrets set NAME", "NAME KEPT_IN USED_BY", func(e secretEntry) []string {
		var users []string
		for _, u := range e.UsedBy {
			user := cmp.Or(u.Of, u.Key)
			if u.OnlyTo != "" {
				user += " (only to " + u.OnlyTo + ")"
			}
			if !slices.Contains(users, user) {
				users = append(users, user)
			}
		}
		return []string{e.Name, cmp.Or(e.KeptIn, "nowhere: not set"), cmp.Or(strings.Join(users, ", "), "nobody")}
	})
}
