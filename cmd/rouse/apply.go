package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agent/checkout"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newApply(env *cli) *cobra.Command {
	var pick, diff bool
	cmd := &cobra.Command{
		Use:   "apply RUN",
		Short: "Merges the branch of a run that worked in a checkout",
		Long: `Merges the branch of a finished run into the branch that it began from: a fast-forward if possible,
else a merge commit of yours. A worktree in which that branch is checked out follows. With
--cherry-pick each commit is made again on top of it.

If the branches contradict each other, or files that would change have changes of yours that are
not committed, nothing is done and the files are named. Afterwards the clone is removed. The
branch of the run stays in your repository until rouse discard RUN.`,
		Example: `  rouse apply 42 --diff
  rouse apply 42
  rouse apply 42 --cherry-pick`,
		RunE: env.with(toRead, func(s *session, args []string) error {
			var c api.Checkout
			path := "/v1/runs/" + url.PathEscape(args[0])
			if diff {
				return s.show(path+"/checkout", nil, &c, func() error {
					printCheckout(s.out, c, s.now())
					return sayf(s.out, "%s", text.Lines(c.Diff))
				})
			}
			ask := api.ApplyRequest{}
			if pick {
				ask.How = string(checkout.CherryPick)
			}
			return s.send(path+"/apply", ask, &c, func() error { return sayf(s.out, "%s\n", appliedText(c)) })
		}),
	}

	cmd.Flags().BoolVar(&pick, "cherry-pick", false, "make each commit again on top of the branch, instead of merging")
	cmd.Flags().BoolVar(&diff, "diff", false, "change nothing, show commits, files and changes")
	cmd.MarkFlagsMutuallyExclusive("cherry-pick", "diff")
	return withJSON(cmd)
}

func newDiscard(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "discard RUN",
		Short: "Removes the clone and the branch of a run that worked in a checkout",
		Long: `Removes the clone of a finished run, and its branch in your repository. What was applied stays.
A branch that you have changed since, or that is checked out, stays as well and is named.`,
		Example: "  rouse discard 42",
		RunE: sending(env, "/v1/runs/%s/discard", func(s *session, c api.Checkout) error {
			return sayf(s.out, "run %s: its clone and the branch %s are removed\n", c.Run, text.OneLine(c.Branch))
		}),
	})
}

func appliedText(c api.Checkout) string {
	a := c.Applied
	if a == nil {
		return "run " + c.Run + " was applied"
	}
	if a.Commit == a.Before {
		return fmt.Sprintf("run %s: the branch %s had its commits already", c.Run, text.OneLine(a.Branch))
	}
	return fmt.Sprintf("run %s: the branch %s has %s now (%s), at %s", c.Run, text.OneLine(a.Branch), text.Plural(len(c.Commits), "commit")+" of it", a.How, text.Head(a.Commit, 12))
}

// printCheckout prints the result of the checkout of a run, as part of the output for the run.
func printCheckout(w io.Writer, c api.Checkout, now time.Time) {
	const most = 20 // maximum number of listed commits and files; --json lists all
	more := func(n int) {
		if n > most {
			fmt.Fprintf(w, "            … and %d more\n", n-most)
		}
	}
	fmt.Fprintf(w, "  checkout  %s at %s, on the branch %s\n", text.OneLine(c.Repo), text.OneLine(c.Ref), text.OneLine(c.Branch))
	for _, one := range c.Commits[:min(len(c.Commits), most)] {
		fmt.Fprintf(w, "  commit    %s %s\n", text.Head(one.Hash, 12), shorten(one.Subject, 120))
	}
	more(len(c.Commits))
	for _, f := range c.Files[:min(len(c.Files), most)] {
		lines := fmt.Sprintf("+%d -%d", f.Added, f.Removed)
		if f.Added < 0 {
			lines = "no text"
		}
		fmt.Fprintf(w, "  file      %s  %s\n", text.OneLine(f.Path), lines)
	}
	more(len(c.Files))
	for _, note := range c.Notes {
		fmt.Fprintf(w, "            %s\n", text.OneLine(note))
	}
	if c.Uncommitted > 0 {
		fmt.Fprintf(w, "            %s not committed, in %s\n", text.Plural(c.Uncommitted, "file"), text.OneLine(c.Clone))
	}
	if c.Pushed != "" {
		fmt.Fprintf(w, "            pushed to %s\n", text.OneLine(strings.TrimSpace(c.Pushed+" "+c.PullRequest)))
	}

	switch c.State {
	case api.CheckoutWaiting:
		fmt.Fprintf(w, "            waits for you: rouse apply %s --diff, rouse apply %[1]s, or rouse discard %[1]s; its clone is kept until %s\n", c.Run, local(c.KeptUntil, now))
	case api.CheckoutApplied:
		fmt.Fprintf(w, "            %s\n", strings.TrimPrefix(appliedText(c), "run "+c.Run+": "))
	}
}
