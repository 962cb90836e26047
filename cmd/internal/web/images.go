package web

import (
	"bytes"
	"encoding/json"
)

// summarizeImages replaces the images in a recorded envelope by their types and sizes, because nobody
// reads base64.
func summarizeImages(envelope json.RawMessage) json.RawMessage {
	// Most envelopes have no images, and need not be decoded.
	if !bytes.Contains(envelope, []byte(`"images":`)) {
		return envelope
	}

	var e map[string]json.RawMessage
	var images []struct {
		Type string `json:"media_type"`
		Data []byte `json:"data"`
	}
	if json.Unmarshal(envelope, &e) != nil || json.Unmarshal(e["images"], &images) != nil {
		return envelope // images of another shape belong to the tool's own result
	}

	type named struct {
		Type  string `json:"media_type"`
		Bytes int    `json:"bytes"`
	}
	var names []named
	for _, i := range images {
		names = append(names, named{i.Type, len(i.Data)})
	}

	text, err := json.Marshal(names)
	if err != nil {
		return envelope
	}

	e["images"] = text
	if text, err = json.Marshal(e); err != nil {
		return envelope
	}

	return text
}
