// Package requests counts what the API server answers to the requests of controllers.
//
// A workqueue cannot tell an item that failed from one that is to be looked at again later: both
// are retries. The API server's answers tell them apart. So versions are compared by the share of
// requests that the API server refused or could not answer.
//
// # Guarantees
//
//   - Requests are told apart by [Result]: those that a controller expects to fail at times, a
//     conflict or an object that is gone, are no errors.
//   - A request that did not leave the process, because the fence refused it, and one that its
//     caller gave up count nowhere.
//   - Counts only grow. There is one series for each Result, from the first client on.
//
// # Non-guarantees
//
//   - Reads of informers and discovery are not counted: they are the process's.
//   - An error need not be the version's fault: a namespace at its quota and a webhook that denies
//     refuse requests too.
package requests
