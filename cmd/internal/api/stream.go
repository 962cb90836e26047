package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/invopop/jsonschema"
)

// ExportHeader holds the Exported of a file that is sent as it is.
const ExportHeader = "Rouse-Exported"

// WorkLine is a line of the answer to something that takes a while: how far it is, and last
// what became of it.
type WorkLine[T any] struct {
	Done   int64 `json:"done,omitempty"` // rows of an import, bytes of a backup
	Of     int64 `json:"of,omitempty"`
	Result *T    `json:"result,omitempty"`
	*Error
}

// JSONSchemaExtend says that a line has an error where something failed alone.
func (WorkLine[T]) JSONSchemaExtend(s *jsonschema.Schema) { s.Required = nil }

// Import sends a file for import and reports how many of its rows are done.
func (c *Client) Import(ctx context.Context, path string, query url.Values, body io.Reader, progress func(done, of int64)) (Imported, error) {
	resp, err := c.request(ctx, http.MethodPost, path, query, body, "application/octet-stream")
	if err != nil {
		return Imported{}, err
	}
	defer resp.Body.Close()
	return readWork[Imported](resp, path, progress, "the daemon ended before it said what became of the import; look with rouse db AGENT schema whether its rows are there, and repeat it if not")
}

// readWork reads how far something is, and its result; the caller closes the answer. lost is
// the error for an answer that breaks off.
func readWork[T any](resp *http.Response, path string, progress func(done, of int64), lost string) (result T, err error) {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)

	for lines.Scan() {
		var line WorkLine[T]
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return result, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
		}

		switch {
		case line.Error != nil:
			return result, line.Error
		case line.Result != nil:
			return *line.Result, nil
		}

		progress(line.Done, line.Of)
	}

	return result, errors.Join(errors.New(lost), lines.Err())
}

// Export fetches the answer of a query as a file.
func (c *Client) Export(ctx context.Context, path string, in ExportRequest, to io.Writer) (done Exported, err error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, in)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()

	// Escaped, since headers are ASCII and warnings may quote any text.
	header, err := url.PathUnescape(resp.Header.Get(ExportHeader))
	if err == nil {
		err = json.Unmarshal([]byte(header), &done)
	}
	if err != nil {
		return done, fmt.Errorf("the answer to %s was not understood: %w; is the daemon of the same version?", path, err)
	}

	n, err := io.Copy(to, resp.Body)
	// In this process an answer has no length, so only the count shows that it broke off.
	if err == nil && n != done.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return done, fmt.Errorf("the export could not be written: %w", err)
	}

	return done, nil
}

// Backup asks for a copy of an agent's database and reports how far it is, in bytes.
func (c *Client) Backup(ctx context.Context, path string, ask BackupRequest, progress func(done, of int64)) (Backup, error) {
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return Backup{}, err
	}
	defer resp.Body.Close()
	return readWork[Backup](resp, path, progress, "the daemon ended before it said what became of the backup; rouse db AGENT backups lists it if it was done")
}

// BackUpHome asks for a backup of the whole home and reports how far it is, in bytes.
func (c *Client) BackUpHome(ctx context.Context, ask HomeBackupRequest, progress func(done, of int64)) (HomeBackup, error) {
	const path = "/v1/backups"
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return HomeBackup{}, err
	}
	defer resp.Body.Close()
	return readWork[HomeBackup](resp, path, progress, "the daemon ended before it said what became of the backup; what it had written is removed by the next one to the same place")
}

// Undo undoes a run and reports how many entries of the changelog are done.
func (c *Client) Undo(ctx context.Context, run string, ask UndoRequest, progress func(done, of int64)) (Undo, error) {
	path := "/v1/runs/" + url.PathEscape(run) + "/undo"
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return Undo{}, err
	}
	defer resp.Body.Close()
	return readWork[Undo](resp, path, progress, "the daemon ended before it said what became of the undo; repeat it: what is undone already is not undone twice")
}

// Artifact fetches the bytes of an artifact of a run.
func (c *Client) Artifact(ctx context.Context, run string, a Artifact, to io.Writer) error {
	path := "/v1/runs/" + run + "/artifacts/" + a.ID
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	n, err := io.Copy(to, resp.Body)
	if err == nil && n != a.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s could not be written: %w", a.Name, err)
	}

	return nil
}
