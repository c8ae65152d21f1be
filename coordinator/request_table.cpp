#include "coordinator/request_table.h"

namespace copse {

ClientRequest* RequestTable::add(const PeerId& gateway, RequestId request) {
  const auto [name, added] = by_name_.emplace(std::pair{gateway, request}, next_);
  if (!added) return nullptr;
  ClientRequest& entry = requests_[next_];
  entry.sequence = next_++;
  entry.gateway = gateway;
  entry.request = request;
  return &entry;
}

ClientRequest* RequestTable::find(SequenceId sequence) {
  const auto found = requests_.find(sequence);
  return found == requests_.end() ? nullptr : &found->second;
}

const ClientRequest* RequestTable::find(SequenceId sequence) const {
  const auto found = requests_.find(sequence);
  return found == requests_.end() ? nullptr : &found->second;
}

ClientRequest* RequestTable::find(const PeerId& gateway, RequestId request) {
  const auto found = by_name_.find({gateway, request});
  return found == by_name_.end() ? nullptr : find(found->second);
}

void RequestTable::erase(SequenceId sequence) {
  const auto found = requests_.find(sequence);
  if (found == requests_.end()) return;
  by_name_.erase({found->second.gateway, found->second.request});
  requests_.erase(found);
}

std::vector<SequenceId> RequestTable::of(const PeerId& gateway) const {
  std::vector<SequenceId> ids;
  for (const auto& [id, entry] : requests_) {
    if (entry.gateway == gateway) ids.push_back(id);
  }
  return ids;
}

std::vector<SequenceId> RequestTable::all() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, entry] : requests_) ids.push_back(id);
  return ids;
}

}  // namespace copse
