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

func newDashboard(env *cli) *cobra.Command {
	var print, rotate, sessions bool
	var end string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Opens the dashboard, logged in",
		Long: `Opens the pages of the daemon in your browser, by a link that logs it in: it can be
followed once, within ten minutes. A browser stays logged in for 30 days.

Programs send the token of HOME/dashboard/token as Authorization: Bearer.`,
		RunE: env.with(toChange, func(s *session, _ []string) error {
			var a api.Access
			path, said := "/v1/access/rotate", "there is another token, and nobody is logged in any more"
			switch {
			case rotate:
			case end != "":
				path, said = "/v1/access/sessions/"+url.PathEscape(end)+"/end", "it is logged out"
			case sessions:
				return s.show("/v1/access", nil, &a, func() error { return printAccess(s.out, a, s.now()) })
			default:
				return openPage(s, "/", print)
			}
			if err := s.post(path, api.Nothing{}, &a); err != nil {
				return err
			}
			return sayf(s.out, "%s\n", said)
		}),
	}

	cmd.Flags().BoolVar(&print, "print", false, "print the link, and open nothing")
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make another token and log everybody out")
	cmd.Flags().BoolVar(&sessions, "sessions", false, "list who is logged in")
	cmd.Flags().StringVar(&end, "end", "", "log out the session of this `id`")
	cmd.MarkFlagsMutuallyExclusive("print", "rotate", "sessions", "end")
	return cmd
}

func newOpen(env *cli) *cobra.Command {
	var print, item bool
	cmd := &cobra.Command{
		Use:   "open RUN|JOB",
		Short: "Opens the page of a run, a job or an item of the inbox",
		Long: `Opens the page of a run by its number, of a job by its name or, with --item, of an item of
the inbox by its number, in your browser.`,
		RunE: env.with(toChange, func(s *session, args []string) error {
			path, err := pageOf(s, args[0], item)
			if err != nil {
				return err
			}
			return openPage(s, path, print)
		}),
	}

	cmd.Flags().BoolVar(&item, "item", false, "the number is that of an item of the inbox")
	cmd.Flags().BoolVar(&print, "print", false, "print the link, and open nothing")
	return cmd
}

// pageOf returns the page of an item, or of a run or a job that must exist.
func pageOf(s *session, name string, item bool) (string, error) {
	_, err := strconv.ParseUint(name, 10, 63)
	switch {
	case item && err != nil:
		return "", usagef("%q is not an item; items have numbers, see: rouse inbox", name)
	case item:
		return "/inbox/" + name, nil
	case err == nil:
		return "/runs/" + name, s.get("/v1/runs/"+name, nil, &api.RunDetail{})
	}
	// The API knows the jobs. Its error suggests the nearest name.
	return "/jobs/" + url.PathEscape(name), s.get("/v1/next", url.Values{"job": {name}, "n": {"1"}}, &[]api.Occurrence{})
}

// openPage opens a page in the browser with a login link, or prints the link.
func openPage(s *session, path string, print bool) error {
	var login api.Login
	if err := s.post("/v1/access/logins", api.LoginRequest{Path: path}, &login); err != nil {
		return err
	}
	if !print {
		err := openBrowser(s.cmd.Context(), login.URL)
		if err == nil {
			return nil
		}
		fmt.Fprintf(s.cmd.ErrOrStderr(), "rouse: no browser could be opened (%v); open this link in one:\n", err)
	}
	return sayf(s.out, "%s\n", login.URL)
}

// openBrowser opens an address in the default browser. Other users can see the login link in the
// process list, but the link works only once.
func openBrowser(ctx context.Context, address string) error {
	argv := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		argv[0] = "open"
	case "windows":
		argv = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	}

	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, argv[0], argv[1:]...).Run() //nolint:gosec // the program is one of three constants
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
