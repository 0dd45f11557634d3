// Package wire drops metadata that nobody keeps from watches, before it is decoded. Of an event of a
// Pod, most bytes are managed fields, and decoding takes half the time without them
// (BenchmarkDecode).
//
// # Guarantees
//
//   - Whoever decodes events as an API server encodes them, and then drops the same fields, gets
//     what it would have got without this package.
//   - Nothing else changes: bookmarks, errors, answers that are no watch in protobuf, and whatever
//     cannot be read, pass as they are.
//   - An event passes as soon as all of it has arrived. A watch that waits for one holds no memory.
//
// # Non-guarantees
//
//   - Lists that are not sent as a watch have all fields.
//   - An event of more than a megabyte has all fields, and so has one that is still compressed.
package wire
