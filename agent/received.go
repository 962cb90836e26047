package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agentdb/ledger"
	"rouse/internal/text"
)

// maxReceived bounds the artifacts of a run, in bytes.
const maxReceived = 256 << 20

// receivedFolder returns the folder for the files that a run receives from MCP servers. The run can read it; Sweep removes it when
// the run has finished, and the artifacts stay.
func (r *Runner) receivedFolder(run int64) string {
	return filepath.Join(r.manifests, fmt.Sprintf("%d.files", run))
}

// keepReceived returns a function that stores content of an MCP server as an artifact and as a file that the run can read.
func (r *Runner) keepReceived(redact func(string) string) mcp.Keep {
	return func(ctx context.Context, in tool.Invocation, number int, name, mediaType string, data []byte) (string, error) {
		ctx = context.WithoutCancel(ctx)
		kept, err := r.ledger.Artifacts(ctx, in.Run)
		if err != nil {
			return "", err
		}
		size := int64(len(data))
		for _, a := range kept {
			size += a.Size
		}
		if size > maxReceived {
			return "", fmt.Errorf("a run has at most %s of artifacts", text.Size(maxReceived))
		}
		if utf8.Valid(data) { // other content has no form in which a secret is recognized
			data = []byte(redact(string(data)))
		}

		at, err := writeReceived(r.receivedFolder(in.Run), name, data)
		if err != nil {
			return "", err
		}
		_, err = r.ledger.AddArtifact(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt},
			ledger.Artifact{Agent: in.Agent, Key: fmt.Sprintf("%s/file-%d", in.Key, number), Name: name, Description: mediaType}, data)
		return at, err
	}
}

// writeReceived writes a file under a name, or the name with a number if another file has it.
func writeReceived(folder, name string, data []byte) (string, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	ext := path.Ext(name)
	for n := 1; ; n++ {
		at := filepath.Join(folder, name)
		if n > 1 {
			at = filepath.Join(folder, fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext))
		}
		f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			if same, err := os.ReadFile(at); err == nil && bytes.Equal(same, data) {
				return at, nil
			}
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		return at, errors.Join(err, f.Close())
	}
}
