package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
)

func newDashboard(at *place) *cobra.Command {
	var print, rotate, sessions bool
	var end string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Opens the dashboard, logged in",
		Long: `Opens the pages of the daemon in your browser, by a link that logs it in: it can be
followed once, within ten minutes. A browser stays logged in for 30 days.

Programs send the token of HOME/dashboard/token as Authorization: Bearer.`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			switch {
			case rotate:
				return changeAccess(cmd, at, "/v1/access/rotate", "there is another token, and nobody is logged in any more")
			case end != "":
				return changeAccess(cmd, at, "/v1/access/sessions/"+url.PathEscape(end)+"/end", "it is logged out")
			case sessions:
				return listSessions(cmd, at)
			}
			return openPage(cmd, at, "/", print)
		}),
	}

	cmd.Flags().BoolVar(&print, "print", false, "print the link, and open nothing")
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make another token and log everybody out")
	cmd.Flags().BoolVar(&sessions, "sessions", false, "list who is logged in")
	cmd.Flags().StringVar(&end, "end", "", "log out the session of this `id`")
	cmd.MarkFlagsMutuallyExclusive("print", "rotate", "sessions", "end")
	return cmd
}

func newOpen(at *place) *cobra.Command {
	var print, item bool
	cmd := &cobra.Command{
		Use:   "open RUN|JOB",
		Short: "Opens the page of a run, a job or an item of the inbox",
		Long: `Opens the page of a run by its number, of a job by its name or, with --item, of an item of
the inbox by its number, in your browser.`,
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			path, err := pageOf(cmd.Context(), at, args[0], item)
			if err != nil {
				return err
			}
			return openPage(cmd, at, path, print)
		}),
	}

	cmd.Flags().BoolVar(&item, "item", false, "the number is that of an item of the inbox")
	cmd.Flags().BoolVar(&print, "print", false, "print the link, and open nothing")
	return cmd
}

// pageOf is the page of a run, a job or an item that is there.
func pageOf(ctx context.Context, at *place, name string, item bool) (string, error) {
	if item {
		if _, err := strconv.ParseUint(name, 10, 63); err != nil {
			return "", usagef("%q is not an item; items have numbers, see: rouse inbox", name)
		}
		return "/inbox/" + name, nil
	}

	s, err := at.open(ctx)
	if err != nil {
		return "", err
	}
	defer s.Close()

	if _, err := strconv.ParseUint(name, 10, 63); err == nil {
		return "/runs/" + name, s.Get(ctx, "/v1/runs/"+name, nil, &api.RunDetail{})
	}
	// It knows the names of jobs, and suggests the nearest.
	return "/jobs/" + url.PathEscape(name), s.Get(ctx, "/v1/next", url.Values{"job": {name}, "n": {"1"}}, &[]api.Occurrence{})
}

// openPage opens a page in the browser, logged in, or prints its link.
func openPage(cmd *cobra.Command, at *place, path string, print bool) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.Close()

	var login api.Login
	if err := s.Post(cmd.Context(), "/v1/access/logins", api.LoginRequest{Path: path}, &login); err != nil {
		return err
	}
	if !print {
		err := openBrowser(cmd.Context(), login.URL)
		if err == nil {
			return nil
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "rouse: no browser could be opened (%v); open this link in one:\n", err)
	}
	return sayf(cmd.OutOrStdout(), "%s\n", login.URL)
}

// openBrowser hands an address to the desktop. The link is seen by whoever may list the processes of this machine, who finds it used up.
func openBrowser(ctx context.Context, address string) error {
	var argv []string
	switch runtime.GOOS {
	case "darwin":
		argv = []string{"open", address}
	case "windows":
		argv = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	default:
		argv = []string{"xdg-open", address}
	}

	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, argv[0], argv[1:]...).Run() //nolint:gosec // the program is one of three
}

// changeAccess asks for a change of who is let in.
func changeAccess(cmd *cobra.Command, at *place, path, done string) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.Close()

	var a api.Access
	if err := s.Post(cmd.Context(), path, api.Nothing{}, &a); err != nil {
		return err
	}
	return sayf(cmd.OutOrStdout(), "%s\n", done)
}

func listSessions(cmd *cobra.Command, at *place) error {
	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.Close()

	var a api.Access
	if err := s.Get(cmd.Context(), "/v1/access", nil, &a); err != nil {
		return err
	}
	return printAccess(cmd.OutOrStdout(), a, s.now())
}

func printAccess(out io.Writer, a api.Access, now time.Time) error {
	fmt.Fprintf(out, "at %s, the token is in %s\n", a.URL, a.TokenFile)
	for _, s := range a.Sessions {
		fmt.Fprintf(out, "%s  since %s, used %s  %q\n", s.ID, when(s.CreatedAt, now), local(s.UsedAt, now), s.Agent)
	}
	if len(a.Sessions) == 0 {
		fmt.Fprintln(out, "nobody is logged in")
	}
	return sayf(out, "log one out with: rouse dashboard --end ID\n")
}
