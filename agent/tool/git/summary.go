package git

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

// Limits of what a prompt tells of a repository.
const (
	summaryTimeout = 10 * time.Second
	maxSummarised  = 50 // paths
)

// Summary describes the changes in the working folder for a prompt, in at most so many characters;
// "" if the folder is not a repository. It runs git as the tools do, so that nothing that the
// folder names is run (OSA-39).
func Summary(ctx context.Context, host *shell.Launcher, agent string, redact func(string) string, most int) string {
	ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()

	s, err := status(ctx, host, agent)
	if err != nil {
		return "" // a model can call git_status, which says what is wrong
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
