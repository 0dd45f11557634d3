// Package apiresponse reads what an API server's answer to a write says of the object, without
// decoding it: its version, or that it is gone. Of a collection that was deleted it reads the UIDs.
// It also reads from the path of a request what the request is for.
//
// # Guarantees
//
//   - Answers in protobuf and in JSON are read. Whoever sent the request gets every byte of the
//     answer.
//   - No more than the beginning of an answer is kept, 256 KiB of it, or 16 MiB of a list, and only
//     until it has been read.
//   - What cannot be read is an error, never an empty version. [Name], which reads the body of a
//     request, has no name then.
//
// # Non-guarantees
//
//   - The version of an object in JSON that is larger than what is kept: its beginning is not JSON.
//     In protobuf the version is at the beginning.
//   - [Body] of a list has the version of the list, which is older than a deletion of what it lists.
package apiresponse
