// Package requests counts the API server's answers to the requests of controllers.
//
// A workqueue cannot distinguish an item that failed from one that should be looked at again later:
// both are retries. The API server's answers distinguish them. So versions are compared by the
// share of requests that the API server refused or could not answer.
//
// # Guarantees
//
//   - [Result] sorts requests. Answers that a controller expects at times, a conflict or an object
//     that is gone, are not errors.
//   - A request that the fence refused, so that it did not leave the process, does not count, nor
//     does one that its caller gave up.
//   - Counts only grow. There is one series for each Result, from the first client on.
//
// # Non-guarantees
//
//   - Reads by informers and discovery are not counted: they belong to the process.
//   - An error need not be the version's fault: a namespace at its quota and a webhook that denies
//     refuse requests too.
package requests
