package git

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

type file struct {
	Path   string `json:"path"`
	Status string `json:"status"` // added, modified, deleted, renamed, copied, conflict, type
	From   string `json:"from,omitempty"`
}

type statusResult struct {
	Branch    string   `json:"branch,omitempty"`
	Clean     bool     `json:"clean"`
	Staged    []file   `json:"staged"`
	Unstaged  []file   `json:"unstaged"`
	Untracked []string `json:"untracked"`
	Truncated bool     `json:"truncated,omitempty"` // more than 500 of a kind
}

type statusArgs struct{}

func (f *family) status(ctx context.Context, in tool.Invocation, _ statusArgs) (tool.Envelope, error) {
	res, err := status(ctx, f.Launcher, in.Agent)
	return tool.Success(res), err
}

// status returns the state of the working folder.
func status(ctx context.Context, host *shell.Launcher, agent string) (statusResult, error) {
	r, err := openRepo(ctx, host, agent)
	if err != nil {
		return statusResult{}, err
	}
	defer r.close()

	entries, err := r.list(ctx, "status", "--porcelain=v1", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=all")
	if err != nil {
		return statusResult{}, err
	}
	return parseStatus(entries), nil
}

var statusWords = map[byte]string{'M': "modified", 'T': "type", 'A': "added", 'D': "deleted", 'R': "renamed", 'C': "copied", 'U': "conflict"}

// parseStatus parses the output of git status --porcelain=v1 -z. Each entry has two letters and a
// path. The old name of a renamed file is the next entry.
func parseStatus(entries []string) statusResult {
	res := statusResult{Staged: []file{}, Unstaged: []file{}, Untracked: []string{}}
	add := func(list *[]file, f file) {
		if len(*list) == maxPaths {
			res.Truncated = true
			return
		}
		*list = append(*list, f)
	}

	for i := 0; i < len(entries); i++ { // a rename takes two entries
		e := entries[i]
		if branch, ok := strings.CutPrefix(e, "## "); ok {
			branch = strings.TrimPrefix(branch, "No commits yet on ")
			res.Branch, _, _ = strings.Cut(branch, "...")
			continue
		}

		if len(e) < 4 {
			continue
		}

		x, y, path, from := e[0], e[1], text.Clean(e[3:]), ""
		if x == 'R' || x == 'C' {
			if i++; i < len(entries) {
				from = text.Clean(entries[i])
			}
		}

		switch {
		case x == '?':
			if len(res.Untracked) == maxPaths {
				res.Truncated = true
				continue
			}
			res.Untracked = append(res.Untracked, path)
		// Conflicts, from the table in git-status(1).
		case x == 'U' || y == 'U' || x == 'A' && y == 'A' || x == 'D' && y == 'D':
			add(&res.Unstaged, file{path, "conflict", ""})
		default:
			if w := statusWords[x]; w != "" {
				add(&res.Staged, file{path, w, from})
			}
			if w := statusWords[y]; w != "" {
				add(&res.Unstaged, file{path, w, ""})
			}
		}
	}

	res.Clean = len(res.Staged)+len(res.Unstaged)+len(res.Untracked) == 0
	return res
}

// Limits of Summary.
const (
	summaryTimeout = 10 * time.Second
	maxSummarised  = 50 // paths
)

// Summary describes the changes in the working folder for a prompt. most limits its length. It
// returns "" if the folder is not a repository or git fails. It runs git like the tools do, so
// programs named by the repository do not run.
func Summary(ctx context.Context, host *shell.Launcher, agent string, redact func(string) string, most int) string {
	ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()

	s, err := status(ctx, host, agent)
	if err != nil {
		return "" // the model can call git_status, which reports the error
	}
	if s.Clean {
		return "Nothing has changed since the last commit.\n"
	}

	var lines []string
	for _, part := range []struct {
		where string
		files []file
	}{{"staged", s.Staged}, {"not staged", s.Unstaged}} {
		for _, f := range part.files {
			lines = append(lines, fmt.Sprintf("%s %q (%s)", f.Status, f.Path, part.where))
		}
	}
	for _, path := range s.Untracked {
		lines = append(lines, fmt.Sprintf("untracked %q", path))
	}

	var b strings.Builder
	b.WriteString("Changed since the last commit:\n")
	for i, line := range lines {
		line = redact(line) + "\n"
		if i == maxSummarised || b.Len()+len(line) > most {
			fmt.Fprintf(&b, "… and %s: git_status has them\n", text.Plural(len(lines)-i, "more path"))
			break
		}
		b.WriteString(line)
	}
	return b.String()
}
