package model

// EncodeCache is where an adapter caches what it encoded of a conversation, so that a request encodes
// only what is new since the last one. The caller gives the same one to all requests of a conversation,
// makes them one at a time, and does not look into it. It must not change a message that was part
// of a request: a message that is to differ goes into a new list. Without a cache the same bytes
// are sent.
type EncodeCache struct{ State any }
