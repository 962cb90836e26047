package moduleapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi/store"
	"rouse/internal/domain"
	"rouse/internal/ledger/label"
	"rouse/internal/text"
)

// Limits of one storage entry.
const (
	maxKey   = 512     // bytes
	maxValue = 1 << 20 // bytes of JSON
)

// Reads are recorded as database effects, like writes, so that later attempts reuse them. Otherwise
// a module with a counter would count twice.
var (
	storageGetSpec    = reading("host_storage_get", "Reads a value of the skill's own storage.", tool.Spec{Effect: domain.EffectDatabase})
	storageListSpec   = reading("host_storage_list", "Lists the keys of the skill's own storage.", tool.Spec{Effect: domain.EffectDatabase})
	storageSetSpec    = changing("host_storage_set", "Writes a value into the skill's own storage.", tool.Spec{Once: true})
	storageDeleteSpec = changing("host_storage_delete", "Deletes a value of the skill's own storage.", tool.Spec{Once: true})
)

type keyArgs struct {
	Key string `json:"key"`
}

type prefixArgs struct {
	Prefix string `json:"prefix,omitempty" jsonschema:"of the keys; all when absent"`
}

type setArgs struct {
	Key   string `json:"key"`
	Value any    `json:"value,omitempty" jsonschema:"any JSON value; null when absent"`
}

// storagePlace returns the place of the storage, under which its labels are stored.
func (h *Host) storagePlace() label.Place {
	if known := h.stored.Load(); known != nil {
		return *known
	}

	p := StoragePlace(h.storage.Path())
	if p.ID != (label.FileID{}) { // the file exists, and only rouse could replace it
		h.stored.Store(&p)
	}
	return p
}

// StoragePlace returns the place of the storage at a path, under which its labels are stored.
func StoragePlace(path string) label.Place {
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return tool.PlaceOf(filepath.Join(folder, filepath.Base(path)))
	}
	return label.Place{Kind: label.PlaceFile, Name: path}
}

func (h *Host) readsStorage(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return tool.Access{Reads: []label.Place{h.storagePlace()}}, nil
}

func (h *Host) writesStorage(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return tool.Access{Writes: []label.Place{h.storagePlace()}}, nil
}

// stored returns the result of a call of the storage. A broken storage fails only the call, not the
// run.
func stored(result any, err error) (tool.Envelope, error) {
	var full *store.FullError
	switch {
	case errors.As(err, &full):
		return tool.Failure(tool.KindRejected, "%v", full), nil
	case err != nil:
		return tool.Failure(tool.KindUnavailable, "the storage of the skill cannot be used: %v", err), nil
	}
	return tool.Success(value{result}), nil
}

func (h *Host) storageGet(ctx context.Context, _ tool.Invocation, a keyArgs) (tool.Envelope, error) {
	return stored(h.storage.Get(ctx, a.Key))
}

func (h *Host) storageList(ctx context.Context, _ tool.Invocation, a prefixArgs) (tool.Envelope, error) {
	return stored(h.storage.List(ctx, a.Prefix))
}

func (h *Host) storageSet(ctx context.Context, in tool.Invocation, a setArgs) (tool.Envelope, error) {
	raw, err := json.Marshal(a.Value)
	switch {
	case err != nil:
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the value cannot be written as JSON: %v", err).WithField("value", "a JSON value")
	case a.Key == "" || len(a.Key) > maxKey:
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the key has %d bytes", len(a.Key)).WithField("key", fmt.Sprintf("1 to %d bytes", maxKey))
	case len(raw) > maxValue:
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the value has %s, and %s are the most", text.Size(int64(len(raw))), text.Size(maxValue)).WithField("value", "a smaller one")
	}
	return stored(nil, h.storage.Set(ctx, store.Call{Run: in.Run, Key: in.Key}, a.Key, raw))
}

func (h *Host) storageDelete(ctx context.Context, in tool.Invocation, a keyArgs) (tool.Envelope, error) {
	return stored(nil, h.storage.Delete(ctx, store.Call{Run: in.Run, Key: in.Key}, a.Key))
}
