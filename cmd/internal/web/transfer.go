package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/transfer"
	"rouse/cmd/internal/api"
)

// maxImport is the maximum size of a file that an owner imports, in bytes. It is larger than the
// limit for agents, but the file is held in memory.
const maxImport = 256 << 20

// progressEvery is the interval between progress reports of long work.
const progressEvery = 200 * time.Millisecond

// importFile imports the body of a request and responds with JSON lines.
func (s *databases) importFile(w http.ResponseWriter, r *http.Request) {
	db, release, err := s.storage.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer release()

	q := r.URL.Query()
	ctx := r.Context()
	sendWork(s.responder, w, r, func(progress func(done, of int64)) (api.Imported, error) {
		return db.Import(ctx, byUser, transfer.ImportSpec{
			Table: q.Get("table"), Name: q.Get("name"), Format: q.Get("format"), Mode: q.Get("mode"), KeyColumns: q["key"],
			Source: r.Body, Size: number(r, "size", 0), Limit: maxImport, Progress: progress,
		})
	})
}

// sendWork calls work and sends its progress until it is done. A slow client does not delay the
// work, but gets only the latest progress.
func sendWork[T any](s *responder, w http.ResponseWriter, r *http.Request, work func(progress func(done, of int64)) (T, error)) {
	var progress atomic.Pointer[api.WorkLine[T]]
	over := make(chan api.WorkLine[T], 1)
	go func() {
		result, err := work(func(done, of int64) { progress.Store(&api.WorkLine[T]{Done: done, Of: of}) })
		if err != nil {
			over <- api.WorkLine[T]{Error: s.Failure(r, err)}
			return
		}
		over <- api.WorkLine[T]{Result: &result}
	}()

	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()

	sent := false
	for {
		select {
		case last := <-over:
			if last.Error != nil && !sent {
				// The status has not been sent yet, so it can report the failure.
				setRetryAfter(w, last.Error)
				s.write(w, r, last.Status, last.Error)
				return
			}
			if err := out.Encode(last); err != nil {
				s.log.Warn("what became of a request could not be sent", "path", r.URL.Path, "error", err)
			}
			return
		case <-tick.C:
			line := progress.Swap(nil)
			if line == nil {
				continue
			}

			sent = true
			if out.Encode(line) != nil || flush.Flush() != nil {
				// The client has disconnected, which cancels the work. Wait for its end, because
				// it uses the body of the request and the database that the caller releases.
				<-over
				return
			}
		}
	}
}

// exportFile sends the result of a query as a file. It first completes the file, because the size
// and any error must be known before the first byte is sent.
func (s *databases) exportFile(w http.ResponseWriter, r *http.Request) {
	var in api.ExportRequest
	if err := read(r, &in); err != nil {
		s.fail(w, r, err)
		return
	}

	done, file, err := s.exported(r, in)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	defer func() {
		_ = file.Close() // a failed write was reported by exported
		_ = os.Remove(file.Name())
	}()

	header, err := json.Marshal(done)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(done.Bytes, 10))
	// Escape the name, because headers cannot contain all characters.
	w.Header().Set(api.ExportHeader, url.PathEscape(string(header)))
	if _, err := io.Copy(w, file); err != nil && r.Context().Err() == nil {
		s.log.Warn("an export could not be sent", "error", err)
	}
}

// exported writes the file of an export. The caller must remove it.
func (s *databases) exported(r *http.Request, in api.ExportRequest) (done api.Exported, file *os.File, err error) {
	_, err = withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (_ api.Nothing, err error) {
		file, done, err = ExportFile(ctx, db, agentdb.ExportSpec{SQL: in.SQL, Params: in.Params, Format: in.Format, Name: in.Name})
		return api.Nothing{}, err
	})
	return done, file, err
}

// ExportFile writes the result of a query to a temporary file. The caller must remove the file.
func ExportFile(ctx context.Context, db *agentdb.DB, spec agentdb.ExportSpec) (*os.File, api.Exported, error) {
	file, err := os.CreateTemp("", "rouse-export-")
	if err != nil {
		return nil, api.Exported{}, fmt.Errorf("there is no place to prepare the export: %w", err)
	}
	done, err := db.Export(ctx, spec, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, done, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, done, nil
}
